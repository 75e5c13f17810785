// Records of very different sizes share the device without every slot being as large as the largest.
#include "megatrain/plan/slot_rings.h"

#include <gtest/gtest.h>

#include <set>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/schedule.h"
#include "megatrain/plan/verify.h"
#include "tests/plan/least_budget.h"
#include "tests/support/dense_workload.h"

namespace megatrain {

namespace {

constexpr int64_t kBlocks = 6, kLarge = 1 << 20;

// Blocks with one record each, plus one of `small` elements, like attention beside experts.
Workload pairs(int64_t small) {
  Workload w;
  w.micro_batches = 3;
  w.micro_tokens = 256;
  w.input_bytes = w.tokens() * 32;
  make_dense(w, {.hidden = 128, .vocab = 1000, .blocks = kBlocks, .block_elements = kLarge, .head_elements = 128000});
  std::vector<RecordWork> records = {w.records.front()};
  for (int64_t block = 1; block <= kBlocks; ++block) {
    w.phases[static_cast<size_t>(block)].records = {2 * block - 1, 2 * block};
    records.push_back({.elements = small, .trained = small, .low = small});
    records.push_back(w.record(block));
    records.back().place = 1;
  }
  records.push_back(w.records.back());
  w.phases.back().records = {2 * kBlocks + 1};
  w.records = records;
  w.parameters = w.active_parameters = w.all_elements();
  return w;
}

const MachineProfile kMachine;
constexpr int64_t kPlenty = int64_t{1} << 60;

}  // namespace

TEST(SlotRings, ARecordOfAQuarterOfTheLargestIsSmall) {
  const Workload below = pairs(kLarge / 4), above = pairs(kLarge / 4 + 1);
  EXPECT_TRUE(SlotRings(below).is_small(1));
  EXPECT_FALSE(SlotRings(below).is_small(2));
  EXPECT_FALSE(SlotRings(above).is_small(1));
  const auto [large, small] = SlotRings(below).all();
  EXPECT_EQ(large.at_once, 1);
  EXPECT_EQ(small.at_once, 1);
  EXPECT_EQ(small.records, kBlocks);
  const auto [both, none] = SlotRings(above).all();
  EXPECT_EQ(both.at_once, 2);
  EXPECT_EQ(none.records, 0);
}

TEST(SlotRings, TheirSlotsAreAsLargeAsTheirOwnLargest) {
  const Workload w = pairs(kLarge / 10);
  Plan plan = random_plan(w, 0);
  for (RecordPlan& record : plan.records) record = {};
  SlotRings(w).set(2, plan.rings);
  const MemoryNeed need = memory_need(w, plan);
  EXPECT_EQ(need.bytes_of(ResourceKind::weight_slot), 2 * w.weight_bytes(2));
  EXPECT_LT(need.bytes_of(ResourceKind::small_slot), 2 * w.weight_bytes(1) + 1024);
  EXPECT_GE(need.bytes_of(ResourceKind::small_slot), 2 * w.weight_bytes(1));
}

TEST(SlotRings, EveryRandomPlanIsValidOrderedAndFetchesIntoTheRecordsOwnRing) {
  const Workload w = pairs(kLarge / 10);
  const SlotRings rings(w);
  std::set<int64_t> slots;
  int64_t fetches = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Plan plan = random_plan(w, seed);
    EXPECT_NO_THROW(check_plan(w, plan)) << seed;
    EXPECT_EQ(plan_from_json(w, plan_to_json(w, plan), "the plan"), plan);
    slots.insert(plan.rings.small_slots);
    const Inventory inventory(w, plan);
    const Schedule schedule = build_schedule(w, plan, StepMode::train);
    ASSERT_TRUE(verify(schedule).empty()) << plan_to_json(w, plan).dump();
    for (const Action& action : schedule.actions) {
      if (action.kind != ActionKind::fetch_weights || !plan.streams(action.record)) continue;
      if (!w.is_layer_record(action.record)) continue;
      for (const auto& [as, resource, write] : action.accesses) {
        if (as != Operand::to) continue;
        ++fetches;
        EXPECT_EQ(resource.kind, rings.of(action.record).kind);
        EXPECT_GE(inventory.bytes(resource), w.weight_bytes(action.record));
      }
    }
    EXPECT_LE(least_seconds(w, plan, kMachine), estimate(w, plan, kMachine).step_s * (1 + 1e-9)) << seed;
  }
  EXPECT_GT(fetches, 100);
  EXPECT_EQ(slots.size(), static_cast<size_t>(kBlocks));  // from 1 to all
}

TEST(SlotRings, APlanWithTooFewOrTooManySmallSlotsIsRefusedByName) {
  const Workload w = pairs(kLarge / 10), equal = pairs(kLarge);
  for (const int64_t slots : {int64_t{0}, kBlocks + 1}) {
    Plan plan = random_plan(w, 1);
    plan.rings.small_slots = slots;
    try {
      check_plan(w, plan);
      ADD_FAILURE() << slots;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("small_slots"), std::string::npos) << error.what();
    }
  }
  Plan plan = random_plan(equal, 1);
  EXPECT_EQ(plan.rings.small_slots, 0);
  plan.rings.small_slots = 1;
  EXPECT_THROW(check_plan(equal, plan), Error);
}

TEST(SlotRings, ThePlannerStreamsInLessMemoryAndALargerBudgetIsNeverSlower) {
  const Workload w = pairs(kLarge / 10), equal = pairs(kLarge / 4 + 1);
  const auto least = [](const Workload& some) {
    return least_budget(some, kMachine, kPlenty,
                        [](int64_t gpu) { return Budgets{.gpu_bytes = gpu, .host_bytes = kPlenty}; });
  };
  const int64_t needed = least(w);
  EXPECT_LT(needed + w.weight_bytes(2) / 2, least(equal));  // less by one slot of the largest size
  double before = 1e300;
  const int64_t most =
      memory_need(w, make_plan(w, {.gpu_bytes = kPlenty, .host_bytes = kPlenty}, kMachine, nullptr)).hbm_bytes();
  for (int64_t i = 0; i <= 12; ++i) {
    const int64_t gpu = needed + (most - needed) / 12 * i;
    const Plan plan = make_plan(w, {.gpu_bytes = gpu, .host_bytes = kPlenty}, kMachine, nullptr);
    const double now = estimate(w, plan, kMachine).step_s;
    EXPECT_LE(now, before * (1 + 1e-12)) << gpu;
    EXPECT_LE(memory_need(w, plan).hbm_bytes(), gpu);
    before = now;
  }
}

}  // namespace megatrain
