// Moments on disk as the planner sees them: when they go there, their cost, and the message if they cannot.
#include <algorithm>
#include <ctime>

#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/describe.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/schedule.h"
#include "megatrain/plan/spill.h"
#include "tests/plan/least_budget.h"
#include "tests/support/dense_workload.h"
#include "tests/support/fixtures.h"
#include "tests/support/plan_changes.h"

namespace megatrain {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 60;
const MachineProfile kMachine;

// Twelve blocks with a billion elements in total, of which the head is a tenth.
constexpr int64_t kHidden = 1024, kVocab = 100'000;

Workload twelve_blocks(bool clip, bool tied = false) {
  Workload w;
  w.clip = clip;
  w.micro_batches = 4;
  w.micro_tokens = 8192;
  w.workspace_bytes = 100 * kMiB;
  w.input_bytes = w.tokens() * 32;
  make_dense(w, {.hidden = kHidden,
                 .vocab = kVocab,
                 .tied = tied,
                 .blocks = 12,
                 .block_elements = 75'000'000,
                 .head_elements = tied ? kHidden : kVocab * kHidden});
  return w;
}

Budgets budgets(int64_t host, int64_t disk) {
  return {.gpu_bytes = 8 * kGiB, .host_bytes = host, .disk_bytes = disk, .state_on_host = true};
}

Plan planned(const Workload& w, int64_t host, int64_t disk = kPlenty) {
  return make_plan(w, budgets(host, disk), kMachine, nullptr);
}

int64_t enough(const Workload& w) { return memory_need(w, planned(w, kPlenty)).host_bytes(); }

// The least host memory for which there is a plan with a disk.
int64_t least_host_bytes(const Workload& w) {
  return least_budget(
      w, kMachine, kPlenty, [](int64_t host) { return budgets(host, kPlenty); }, kMiB);
}

std::vector<Workload> workloads() {
  return {twelve_blocks(true), twelve_blocks(false), twelve_blocks(true, true), twelve_blocks(false, true)};
}

TEST(DiskPlans, KeepAllMomentsInMemoryWhereThatHoldsThem) {
  for (const Workload& w : workloads()) {
    const Plan plan = planned(w, enough(w));
    EXPECT_EQ(memory_need(w, plan).disk_bytes(), 0);
    EXPECT_EQ(plan, planned(w, enough(w), 0));
  }
}

TEST(DiskPlans, FitEveryBudgetFromHalfTheStateOnAndMoreMemoryIsNeverSlower) {
  for (const Workload& w : workloads()) {
    const int64_t least = least_host_bytes(w), most = enough(w);
    EXPECT_LT(least, most * 3 / 5) << "weights, low bits and gradients stay, moments go";
    double before = 1e300;
    int64_t disk_before = kPlenty;
    for (int64_t i = 0; i <= 24; ++i) {
      const Budgets given = budgets(least + (most - least) * i / 24, kPlenty);
      const Plan plan = make_plan(w, given, kMachine, nullptr);
      EXPECT_NO_THROW(check_plan(w, plan));
      EXPECT_NO_THROW(check_fit(w, plan, given));
      const double now = estimate(w, plan, kMachine).step_s;
      EXPECT_LE(now, before * (1 + 1e-9)) << i << " " << plan_to_json(w, plan);
      const int64_t disk = memory_need(w, plan).disk_bytes();
      EXPECT_LE(disk, disk_before) << i;
      before = now;
      disk_before = disk;
    }
    EXPECT_EQ(disk_before, 0);
  }
}

TEST(DiskPlans, WithClippingTheBlocksNeededLastGoFirstAndTheHeadAfterThem) {
  const Workload w = twelve_blocks(true);
  Plan base = planned(w, kPlenty);
  end_visits(w, base);
  const int64_t need = memory_need(w, base).host_bytes();
  for (int64_t blocks = 3; blocks <= 12; ++blocks) {
    const int64_t saved = (blocks - 2) * 2 * w.moment_bytes(1);  // two slabs take the memory of two blocks
    const auto plan = spill_moments(w, base, budgets(need - saved + kMiB, kPlenty), 2, SpillOrder::last);
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->rings.moment_slabs, 2);
    for (int64_t record = 0; record < w.record_count(); ++record)
      EXPECT_EQ(plan->moments_on_disk(record), record > 12 - blocks && record <= 12) << blocks << " " << record;
  }
}

TEST(DiskPlans, KeepWeightsThereOnlyWhereMemoryDoesNotHoldThem) {
  for (const Workload& w : workloads()) {
    const int64_t least = least_host_bytes(w);
    bool before = true;
    for (int64_t i = 0; i <= 24; ++i) {
      const Plan plan = planned(w, least + (enough(w) - least) * i / 24);
      const int64_t blocks = plan.with_weights_on_disk();
      EXPECT_TRUE(before || blocks == 0) << i;
      EXPECT_TRUE(i > 0 || blocks > 0) << "the least memory";
      before = blocks > 0;
      for (int64_t record = 1; blocks > 0 && record < w.head_record(); ++record) {
        const bool may = w.is_trained(record) && !plan.updated_on_device(record);
        EXPECT_EQ(plan.moments_on_disk(record), may) << "moments go before weights";
      }
    }
    EXPECT_FALSE(before);
  }
}

TEST(DiskPlans, RefusalsNameTheDiskOnlyWhereItHelps) {
  const Workload w = twelve_blocks(true);
  const int64_t host = (least_host_bytes(w) + enough(w)) / 2;
  expect_error(ExitCode::cannot_fit, {"host memory", "memory.host", "set memory.nvme to", "memory.nvme_path"},
               [&] { planned(w, host, 0); });
  expect_error(ExitCode::cannot_fit, {"raise memory.nvme from 1.00 MiB to"}, [&] { planned(w, host, kMiB); });
  try {
    planned(w, 16 * kMiB, 0);
    ADD_FAILURE() << "16 MiB do not hold the rows of a step";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("memory.nvme"), std::string::npos) << error.what();
  }
  const Plan plan = planned(w, host);
  expect_error(ExitCode::cannot_fit, {"on disk", "memory.nvme"}, [&] { check_fit(w, plan, budgets(host, 0)); });
}

// The size after `before` in the planner's error message.
int64_t quoted(const Workload& w, int64_t host, int64_t disk, const std::string& before) {
  try {
    planned(w, host, disk);
  } catch (const Error& error) {
    const std::string what = error.what();
    const size_t at = what.find(before);
    if (at == std::string::npos) return 0;
    const size_t begin = at + before.size();
    return parse_bytes(what.substr(begin, what.find("iB", begin) + 2 - begin));
  }
  return 0;
}

TEST(DiskPlans, ARefusalWithADiskQuotesTheNeedOfAPlanThatUsesIt) {
  for (const Workload& w : workloads()) {
    const int64_t least = least_host_bytes(w), host = least + (enough(w) - least) / 4;
    const int64_t disk = quoted(w, host, kMiB, "raise memory.nvme from 1.00 MiB to ");
    ASSERT_GT(disk, 0);
    EXPECT_NO_THROW(planned(w, host, disk));
    // with part of that disk, the message asks for less memory than without any, and that much is enough
    const int64_t part = disk * 3 / 4, with = quoted(w, host, part, "Raise memory.host to ");
    EXPECT_GT(with, host);
    EXPECT_LT(with, quoted(w, host, 0, "Raise memory.host to "));
    EXPECT_NO_THROW(planned(w, with, part));
    EXPECT_LE(quoted(w, host, part, " besides "), part * 101 / 100);
    EXPECT_GT(quoted(w, host, part, " besides "), part / 2);
    // if moving all moments to disk is not enough, the message does not ask for more disk
    EXPECT_EQ(quoted(w, least / 2, kPlenty, "memory.nvme from"), 0);
    EXPECT_NO_THROW(planned(w, quoted(w, least / 2, kPlenty, "Raise memory.host to "), kPlenty));
  }
}

TEST(DiskPlans, TheBytesThatARefusalAsksForAreEnough) {
  for (const Workload& w : workloads()) {
    const int64_t host = (least_host_bytes(w) + enough(w)) / 2;
    Plan plan = planned(w, kPlenty);  // the state of visitors cannot go
    end_visits(w, plan);
    const auto disk = least_disk_bytes(w, plan, budgets(host, 0));
    ASSERT_TRUE(disk.has_value());
    EXPECT_NO_THROW(planned(w, host, *disk));
  }
}

TEST(DiskPlans, ReadsAndWritesRunBesideEachOtherAndBesideTheUpdates) {
  for (const bool clip : {true, false}) {
    const Workload w = twelve_blocks(clip);
    Plan all = planned(w, kPlenty);
    end_visits(w, all);
    all.rings.host_gradients = all.leaving(w);
    const int64_t saved = 9 * 2 * w.moment_bytes(1);  // of 12 blocks, through three slabs
    const auto spilled =
        spill_moments(w, all, budgets(memory_need(w, all).host_bytes() - saved + kMiB, kPlenty), 3, SpillOrder::last);
    ASSERT_TRUE(spilled.has_value());
    const Plan& plan = *spilled;
    MachineProfile slow = kMachine;
    slow.disk_read_bytes_per_s = slow.disk_write_bytes_per_s = 1e9;
    slow.disk_both_bytes_per_s = 0;  // each direction has its own speed
    const Estimate e = estimate(w, plan, slow);
    EXPECT_GT(e.disk_write_s, 2 * e.compute_s);
    EXPECT_EQ(e.bound_by, "disk_read");
    EXPECT_LT(e.step_s, 1.25 * e.disk_write_s) << "clip " << clip;
  }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(DiskPlans, OfEightyBlocksAreMadeInASecondOrTwo) {
  for (const bool clip : {true, false}) {
    Workload w = twelve_blocks(clip);
    w.micro_batches = 64;
    make_dense(w, {.hidden = kHidden,
                   .vocab = kVocab,
                   .blocks = 80,
                   .block_elements = 855'000'000,
                   .head_elements = kVocab * kHidden});
    const std::clock_t start = std::clock();  // CPU time of this process, so that other processes do not count
    const Plan plan =
        make_plan(w, {.gpu_bytes = 139 * kGiB, .host_bytes = 500 * kGiB, .disk_bytes = kPlenty}, kMachine, nullptr);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 4.0);
    EXPECT_GT(memory_need(w, plan).disk_bytes(), 0);
  }
}
#endif

TEST(DiskPlans, KeptOutputsThatAreReadOnceGoFirst) {
  const Workload w = twelve_blocks(true);
  Plan plan = planned(w, kPlenty);
  plan.input_every = 4;
  keep(w, plan, "outputs");
  outputs_wait(plan, Tier::host);
  plan.rings.output_slots = 2;
  const int64_t all = memory_need(w, plan).host_bytes();
  std::vector<std::vector<size_t>> chosen;
  for (int64_t saved = 1; std::ssize(chosen) < 4; saved += kMiB) {
    const Plan spilled = spill_activations(w, plan, budgets(all - saved, kPlenty));
    std::vector<size_t> on_disk;
    for (size_t i = 0; i < 12; ++i) {
      if (spilled.layer_phases()[i].outputs == Tier::disk) on_disk.push_back(i);
    }
    if (chosen.empty() || on_disk != chosen.back()) chosen.push_back(on_disk);
  }
  // the topmost of four, then the ones below them
  EXPECT_GT(chosen.back().size(), 3u);
  for (const std::vector<size_t>& on_disk : chosen) {
    for (const size_t block : on_disk) EXPECT_GE(block % 4, on_disk.size() <= 3 ? 3u : 2u);
  }
}

TEST(DiskPlans, CheckPlanSaysWhatMayNotLiveOnDisk) {
  Workload w = twelve_blocks(true);
  const Plan good = planned(w, least_host_bytes(w));
  const auto refused = [&](const std::string& part, auto&& change) {
    Plan plan = good;
    change(plan);
    expect_error(ExitCode::bad_config, {part}, [&] { check_plan(w, plan); });
  };
  refused("13 records", [](Plan& p) { p.records.pop_back(); });
  refused("layer 0, the embedding, has its moments on disk", [](Plan& p) { p.record(0).moments = Tier::disk; });
  refused("layer 0's weights", [](Plan& p) { p.record(0).state = Tier::disk; });
  refused("layer 13's weights", [](Plan& p) { p.record(13).state = Tier::disk; });
  refused("layer 12's weights", [](Plan& p) {
    p.record(12).state = Tier::disk;
    p.record(12).moments = Tier::host;
  });
  refused("layer 12's weights", [](Plan& p) { p.record(12).weights = Tier::disk; });
  refused("weight_slabs", [](Plan& p) { p.rings.weight_slabs = int64_t{1} << 60; });
  refused("moment_slabs is 1, expected 2 to", [](Plan& p) { p.rings.moment_slabs = 1; });
  refused("moment_slabs", [](Plan& p) { p.rings.moment_slabs = int64_t{1} << 60; });
  refused("layer 12's moments", [](Plan& p) {
    p.record(12) = {.weights = Tier::hbm, .state = Tier::hbm, .moments = Tier::disk, .updated_by = UpdatedBy::device};
    --p.rings.host_gradients;
  });
  refused("its moments must be on the host", [](Plan& p) {
    p.record(12).state = Tier::host;
    p.record(12).updated_by = UpdatedBy::device;
    --p.rings.host_gradients;
  });
  w.records[12].trained = 0;
  refused("layer 12's", [](Plan& p) { --p.rings.host_gradients; });
}

TEST(DiskPlans, ExplainSaysHowMuchLivesOnDiskAndWhatItTakes) {
  const Workload w = twelve_blocks(true);
  const Plan plan = planned(w, least_host_bytes(w));
  const std::string text = explain(w, plan, estimate(w, plan, kMachine));
  for (const char* part : {"on disk, through", "disk: ", "disk write"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  const Plan without = planned(w, kPlenty);
  EXPECT_EQ(explain(w, without, estimate(w, without, kMachine)).find("disk"), std::string::npos);
}

}  // namespace
}  // namespace megatrain
