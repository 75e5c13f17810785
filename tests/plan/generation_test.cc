// What a plan reserves for generating between steps: memory that is idle then, and the rest under its own name.
#include <gtest/gtest.h>

#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/random_plan.h"
#include "tests/support/dense_workload.h"

namespace megatrain {

namespace {

Workload twelve_blocks(int64_t generation_bytes) {
  Workload w;
  w.micro_batches = 4;
  w.micro_tokens = 512;
  w.workspace_bytes = 3 * kMiB + 100;  // not a multiple of the alignment of kinds
  w.scratch_bytes = kMiB;
  w.generation_bytes = generation_bytes;
  make_dense(w, {.hidden = 256, .vocab = 5000, .blocks = 12, .block_elements = 800'000, .head_elements = 1'280'128});
  return w;
}

int64_t idle_bytes(const MemoryNeed& need) {
  int64_t bytes = 0;
  for (size_t kind = 0; kind < need.hbm.size(); ++kind)
    bytes += is_idle_between_steps(static_cast<ResourceKind>(kind)) ? need.hbm[kind] : 0;
  return bytes;
}

double seconds_of(const Workload& w, int64_t gpu_bytes) {
  const Plan plan = make_plan(w, {.gpu_bytes = gpu_bytes, .host_bytes = int64_t{1} << 40}, {}, nullptr);
  EXPECT_LE(memory_need(w, plan).hbm_bytes(), gpu_bytes);
  return estimate(w, plan, {}).step_s;
}

}  // namespace

TEST(GenerationMemory, IsSetAsideByNameBeyondWhatIsIdleBetweenStepsAndNothingElseChanges) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Workload without = twelve_blocks(0);
    const Plan plan = random_plan(without, seed);
    const MemoryNeed before = memory_need(without, plan);
    EXPECT_EQ(before.bytes_of(ResourceKind::generation), 0);
    EXPECT_FALSE(memory_to_json(before).at("hbm").contains("generation"));
    for (const int64_t bytes : {kMiB, 64 * kMiB, 4 * kGiB}) {
      const MemoryNeed need = memory_need(twelve_blocks(bytes), plan);
      const int64_t aside = need.bytes_of(ResourceKind::generation), idle = idle_bytes(before);
      EXPECT_EQ(need.hbm_bytes() - before.hbm_bytes(), aside);
      EXPECT_GE(idle + aside, bytes);
      EXPECT_LT(idle + aside, std::max(idle, bytes) + 4096) << "no more than alignment takes";
      EXPECT_EQ(memory_to_json(need).at("hbm").contains("generation"), aside > 0);
      EXPECT_EQ(need.host, before.host);
    }
  }
}

TEST(GenerationMemory, ALargerBudgetIsNeverSlowerBesideIt) {
  for (const int64_t bytes : {8 * kMiB, 64 * kMiB, 200 * kMiB}) {
    const Workload w = twelve_blocks(bytes);
    double before = 1e30;
    for (int64_t budget = bytes + 60 * kMiB; budget < bytes + 600 * kMiB; budget += 30 * kMiB) {
      const double now = seconds_of(w, budget);
      EXPECT_LE(now, before) << format_bytes(budget);
      before = now;
    }
  }
}

TEST(Explain, SaysWhatSamplesTakeAndOnlyWhereThereAreSome) {
  for (const int64_t bytes : {int64_t{0}, 4 * kGiB}) {
    const Workload w = twelve_blocks(bytes);
    const Plan plan = random_plan(w, 1);
    const std::string text = explain(w, plan, estimate(w, plan, {}));
    EXPECT_EQ(text.find("\nsamples: ") != std::string::npos, bytes > 0) << text;
    EXPECT_EQ(text.find("\n  generation ") != std::string::npos, bytes > 0) << text;
  }
}

}  // namespace megatrain
