// Frozen weights in the model's files as the planner sees them: when they stay there, and what they then take.
#include <algorithm>

#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/spill.h"
#include "tests/plan/least_budget.h"
#include "tests/support/dense_workload.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 60;
constexpr int64_t kBlocks = 12;
const MachineProfile kMachine;

// Twelve blocks of 150 MB. All but the middle one are frozen and in files; the embedding and the head are not.
Workload mostly_frozen() {
  Workload w;
  w.micro_batches = 4;
  w.micro_tokens = 4096;
  w.workspace_bytes = 100 * kMiB;
  make_dense(w, {.hidden = 1024,
                 .vocab = 20'000,
                 .blocks = kBlocks,
                 .block_elements = 75'000'000,
                 .head_elements = int64_t{20'000} * 1024});
  std::vector<int64_t> trained(w.records.size(), 0);
  trained[kBlocks / 2] = w.record(kBlocks / 2).elements;
  freeze(w, trained);
  for (const int64_t r : w.layer_records()) {
    if (w.is_trained(r)) continue;
    w.records[static_cast<size_t>(r)].low = 0;
    w.records[static_cast<size_t>(r)].file_bytes = w.weight_bytes(r);
  }
  return w;
}

Budgets budgets(int64_t host, bool base_in_files = false, int64_t disk = 0) {
  return {.gpu_bytes = 6 * kGiB,
          .host_bytes = host,
          .disk_bytes = disk,
          .state_on_host = true,
          .base_in_files = base_in_files};
}

Plan planned(const Workload& w, const Budgets& given) { return make_plan(w, given, kMachine, nullptr); }

TEST(BaseFilesPlans, LeaveNothingInFilesWhileMemoryHoldsIt) {
  const Workload w = mostly_frozen();
  EXPECT_EQ(planned(w, budgets(kPlenty)).with_weights_in_files(), 0);
}

TEST(BaseFilesPlans, LeaveMoreThereTheLessMemoryThereIsAndNeedNoDisk) {
  const Workload w = mostly_frozen();
  const int64_t most = memory_need(w, planned(w, budgets(kPlenty))).host_bytes();
  const int64_t least = least_budget(
      w, kMachine, kPlenty, [](int64_t host) { return budgets(host); }, kMiB);
  Workload without = w;
  for (RecordWork& record : without.records) record.file_bytes = 0;
  const auto host_only = [](int64_t host) { return budgets(host); };
  EXPECT_LT(least + 8 * w.weight_bytes(1), least_budget(without, kMachine, kPlenty, host_only, kMiB))
      << "eleven blocks less, three slabs more";
  int64_t before = kBlocks, fewest = kBlocks;
  for (int64_t i = 0; i <= 12; ++i) {
    const Budgets given = budgets(least + (most - least) * i / 12);
    const Plan plan = planned(w, given);
    EXPECT_NO_THROW(check_plan(w, plan));
    EXPECT_NO_THROW(check_fit(w, plan, given));
    const MemoryNeed need = memory_need(w, plan);
    EXPECT_EQ(need.disk_bytes(), 0);
    EXPECT_EQ(need.file_bytes(), plan.with_weights_in_files() * w.weight_bytes(1));
    EXPECT_LE(plan.with_weights_in_files(), before + 1) << "one more may need one slab less";
    before = plan.with_weights_in_files();
    fewest = std::min(fewest, before);
  }
  EXPECT_EQ(fewest, 0);
  EXPECT_GE(planned(w, budgets(least)).with_weights_in_files(), kBlocks - 2);
}

TEST(BaseFilesPlans, AreTakenBeforeADiskForWeights) {
  const Workload w = mostly_frozen();
  const int64_t most = memory_need(w, planned(w, budgets(kPlenty))).host_bytes();
  const Plan plan = planned(w, budgets(most - 4 * w.weight_bytes(1), false, kPlenty));
  EXPECT_GT(plan.with_weights_in_files(), 0);
  EXPECT_EQ(plan.with_weights_on_disk(), 0);
}

TEST(BaseFilesPlans, LeaveAllThereOnRequest) {
  const Workload w = mostly_frozen();
  const Plan plan = planned(w, budgets(kPlenty, true));
  for (const int64_t r : w.layer_records()) EXPECT_EQ(plan.weights_in_files(r), w.may_stay_in_files(r)) << r;
  EXPECT_GE(plan.rings.weight_slabs, 2);
  const Plan spread = leave_in_files(
      w, planned(w, budgets(kPlenty)),
      budgets(memory_need(w, planned(w, budgets(kPlenty))).host_bytes() - 2 * w.weight_bytes(1) + kMiB), 2);
  std::vector<int64_t> there;
  for (const int64_t r : w.layer_records()) {
    if (spread.weights_in_files(r)) there.push_back(r);
  }
  ASSERT_EQ(there.size(), 4U) << "two for the two slabs, two for the memory";
  for (size_t i = 1; i < there.size(); ++i) EXPECT_GE(there[i] - there[i - 1], 2) << "evenly spread";
}

TEST(BaseFilesPlans, TakeTheTimeOfReadingAndSaySo) {
  const Workload w = mostly_frozen();
  MachineProfile slow = kMachine;
  slow.disk_read_bytes_per_s = 1e6;
  const Plan plan = planned(w, budgets(kPlenty, true));
  const Estimate fast_e = estimate(w, plan, kMachine), slow_e = estimate(w, plan, slow);
  EXPECT_GT(fast_e.disk_read_s, 0);
  EXPECT_NEAR(slow_e.disk_read_s, fast_e.disk_read_s * kMachine.disk_read_bytes_per_s / 1e6, 1e-6 * slow_e.disk_read_s);
  EXPECT_EQ(slow_e.bound_by, "disk_read");
  const std::string text = explain(w, plan, fast_e);
  EXPECT_NE(text.find("weights of 11 frozen blocks: stay in the model's files"), std::string::npos) << text;
  EXPECT_EQ(text.find("\ndisk: "), std::string::npos) << text;
  EXPECT_EQ(plan_from_json(w, plan_to_json(w, plan), "p.json"), plan);
  EXPECT_EQ(memory_to_json(memory_need(w, plan)).at("files").at("weights"), 11 * w.weight_bytes(1));
}

}  // namespace
}  // namespace megatrain
