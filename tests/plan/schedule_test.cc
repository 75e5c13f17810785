#include <gtest/gtest.h>

#include <map>
#include <set>

#include "megatrain/io/json.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/support/dense_workload.h"
#include "tests/support/plan_changes.h"

namespace megatrain {
namespace {

Workload workload(bool tied, bool clip) {
  Workload w;
  w.clip = clip;
  w.micro_batches = 4;
  w.micro_tokens = 8;
  make_dense(w, {.hidden = 16,
                 .vocab = 64,
                 .tied = tied,
                 .blocks = 6,
                 .block_elements = 4096,
                 .head_elements = tied ? 128 : 1152});
  return w;
}

Workload frozen(Workload w, const std::vector<int64_t>& trained) {
  freeze(w, trained);
  return w;
}

std::vector<Workload> workloads() {
  return {workload(false, true),
          workload(true, true),
          workload(false, false),
          workload(true, false),
          frozen(workload(false, true), {0, 0, 0, 4096, 256, 0, 4096, 1152}),
          frozen(workload(true, true), {1024, 0, 128, 0, 256, 0, 4096, 0}),
          frozen(workload(false, false), {0, 0, 0, 0, 0, 0, 0, 1024}),
          frozen(workload(true, false), {0, 128, 128, 0, 4096, 4096, 0, 0})};
}

TEST(Schedule, VerifierFindsNoUnorderedPairInAnyRandomPlan) {
  for (const Workload& w : workloads()) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Plan plan = random_plan(w, seed);
      for (const StepMode mode : {StepMode::train, StepMode::evaluate}) {
        const auto violations = verify(build_schedule(w, plan, mode));
        ASSERT_TRUE(violations.empty()) << plan_to_json(w, plan).dump() << "\n" << violations.front();
      }
    }
  }
}

// The embedding and the head are recognised by their lookups and losses, not by their numbers.
TEST(Schedule, EveryPhaseRunsByTheSameKindsOfActionAndItsGradientsLeaveOnce) {
  for (const Workload& w : workloads()) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Plan plan = random_plan(w, seed);
      std::map<int64_t, int64_t> forward, backward, finished;  // by phase, by phase, by record
      for (const Action& action : build_schedule(w, plan, StepMode::train).actions) {
        const bool head = action.kind == ActionKind::head;
        if (head) {
          EXPECT_TRUE(w.phase(action.phase).ends);
        }
        if (head || (action.kind == ActionKind::forward && !action.repeated)) {
          ++forward[action.phase];
          EXPECT_EQ(action.has(Operand::x), w.phase(action.phase).has_input());
          EXPECT_EQ(action.has(Operand::rows), w.phase(action.phase).looks_up >= 0);
          EXPECT_EQ(action.has(Operand::losses), w.phase(action.phase).ends);
        }
        if (head || action.kind == ActionKind::backward) ++backward[action.phase];
        if (action.kind == ActionKind::finish_gradient) ++finished[action.record];
      }
      for (int64_t p = 0; p < w.phase_count(); ++p) {
        EXPECT_EQ(forward[p], w.micro_batches) << p;
        EXPECT_EQ(backward[p], p >= w.first_trained_phase() ? w.micro_batches : 0) << p;
      }
      for (int64_t r = 0; r < w.record_count(); ++r) EXPECT_EQ(finished[r], w.is_trained(r)) << r;
    }
  }
}

TEST(Schedule, DroppingAnySingleWaitIsFound) {
  for (const Workload& w : workloads()) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const Schedule schedule = build_schedule(w, random_plan(w, seed), StepMode::train);
      if (random_plan(w, seed).serial) continue;  // a serial plan has more waits than needed
      for (size_t i = 0; i < schedule.actions.size(); ++i) {
        for (size_t k = 0; k < schedule.actions[i].waits.size(); ++k) {
          Schedule fewer = schedule;
          fewer.actions[i].waits.erase(fewer.actions[i].waits.begin() + static_cast<int64_t>(k));
          ASSERT_FALSE(verify(fewer, 1).empty())
              << action_name(schedule.actions[i].kind) << ": " << wait_kind_name(schedule.actions[i].waits[k].kind);
        }
      }
    }
  }
}

TEST(Schedule, WeightsCrossOnceAPassAndGradientsOnceAStep) {
  const Workload w = workload(false, true);
  Plan plan = random_plan(w, 0);
  plan.rings.weight_slots = 2;
  plan.sweeps = {4};
  live_on_host(w, plan);
  const Schedule schedule = build_schedule(w, plan, StepMode::train);
  std::map<int64_t, int> fetched, left;
  for (const Action& action : schedule.actions) {
    if (action.kind == ActionKind::fetch_weights) ++fetched[action.record];
    if (action.kind == ActionKind::offload_gradient) ++left[action.record];
  }
  for (int64_t block = 1; block <= 6; ++block) {
    EXPECT_EQ(fetched[block], block >= 5 ? 1 : 2)
        << "block " << block << ": the last two are still in their slots at the turn";
    EXPECT_EQ(left[block], 1);
  }
}

TEST(Schedule, StateThatLivesOnTheDeviceNeverCrossesAndWhatVisitsCrossesOnceEachWay) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Workload w = workload(seed % 2 == 0, true);
    if (seed % 3 == 0) w = frozen(w, {0, 4096, 0, 128, 256, 0, 4096, 128});
    const Plan plan = random_plan(w, seed);
    std::map<int64_t, int> in, out, weights, gradients;
    for (const Action& action : build_schedule(w, plan, StepMode::train).actions) {
      if (action.kind == ActionKind::fetch_state) ++in[action.record];
      if (action.kind == ActionKind::return_state) ++out[action.record];
      if (action.kind == ActionKind::fetch_weights) ++weights[action.record];
      const bool collected = action.kind == ActionKind::collect_gradient;
      if (collected || action.kind == ActionKind::offload_gradient) ++gradients[action.record];
    }
    for (int64_t record = 0; record < w.record_count(); ++record) {
      EXPECT_EQ(in[record], plan.visiting(record));
      EXPECT_EQ(out[record], plan.visiting(record));
      EXPECT_EQ(gradients[record], w.is_trained(record) && plan.gradient_leaves(record));
      EXPECT_FALSE(plan.state_on_device(record) && weights[record] > 0);
    }
  }
}

TEST(Schedule, EstimatedWeightTrafficIsTheSchedules) {
  for (const Workload& w : workloads()) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const Plan plan = random_plan(w, seed);
      int64_t bytes = 0;
      for (const Action& action : build_schedule(w, plan, StepMode::train).actions) {
        if (action.kind == ActionKind::fetch_weights) bytes += w.weight_bytes(action.record);
      }
      EXPECT_EQ(fetched_weight_bytes(w, plan), bytes) << plan_to_json(w, plan).dump();
    }
  }
}

TEST(Schedule, ClippedUpdatesGoInForwardOrderAndUnclippedInBackwardOrder) {
  for (const bool clip : {true, false}) {
    const Workload w = workload(false, clip);
    for (const bool on_host : {true, false}) {
      Plan plan = random_plan(w, 1);
      on_host ? live_on_host(w, plan) : live_on_device(w, plan);
      std::vector<int64_t> order;
      for (const Action& action : build_schedule(w, plan, StepMode::train).actions) {
        if (action.kind == (on_host ? ActionKind::update : ActionKind::update_on_device))
          order.push_back(action.record);
      }
      EXPECT_EQ(order,
                clip ? (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}) : (std::vector<int64_t>{7, 6, 5, 4, 3, 2, 1, 0}));
    }
  }
}

}  // namespace
}  // namespace megatrain
