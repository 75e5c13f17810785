// Kept attention outputs that wait in host memory or on disk give the same bits as on the device.
#include <gtest/gtest.h>

#include <map>

#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/schedule.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/plan_changes.h"

namespace megatrain::tiny {
namespace {

constexpr int64_t kKeptSteps = kSanitized ? 2 : 4;

// The outputs of the blocks wait on these tiers, in turn.
Plan with_outputs(const Workload& w, Plan plan, const std::vector<Tier>& tiers, int64_t slots) {
  keep(w, plan, "outputs");
  for (size_t i = 0; i < plan.layer_phases().size(); ++i) plan.layer_phases()[i].outputs = tiers[i % tiers.size()];
  plan.rings.output_slots = plan.outputs_wait_elsewhere() ? slots : 0;
  plan.rings.activation_slabs = plan.activations_on_disk() ? 2 : 0;
  return plan;
}

TEST(KeptOutputs, ChangeNoBitWhereverTheyWait) {
  const std::vector<std::vector<Tier>> places = {
      {Tier::hbm}, {Tier::host}, {Tier::disk}, {Tier::hbm, Tier::host}, {Tier::disk, Tier::host, Tier::hbm}};
  for (const Shape& shape :
       {Shape{}, Shape{.layers = 5, .freezing = {.freeze = {"model.embed_tokens.*", "model.layers.0.*"}}},
        Shape{.layers = 4, .experts = 8, .experts_per_record = 3}}) {
    Tiny tiny(shape);
    const std::string expected = tiny.train(tiny.default_plan(), kKeptSteps);
    for (size_t place = 0; place < places.size(); ++place) {
      const std::vector<Tier>& tiers = places[place];
      for (const int64_t every : {1, 3}) {
        for (const std::vector<int64_t>& sweeps : {std::vector<int64_t>{4}, std::vector<int64_t>{1, 3}}) {
          if (kSanitized && ((every > 1) != (sweeps.size() > 1) || (every > 1) != (place % 2 > 0))) continue;
          Plan plan = with_outputs(tiny.workload(), tiny.default_plan(), tiers, 2 + every / 2);
          plan.input_every = every;
          plan.sweeps = sweeps;
          EXPECT_EQ(tiny.train(plan, kKeptSteps), expected) << plan_to_json(tiny.workload(), plan).dump();
        }
      }
    }
  }
}

// Once in each direction per step; outputs still in their slot at the turn are not fetched.
TEST(KeptOutputs, LeaveOnceAndComeBackOnce) {
  Tiny tiny({.layers = 6});
  const Workload& w = tiny.workload();
  const Plan plan = with_outputs(tiny.workload(), tiny.default_plan(), {Tier::disk}, 2);
  std::map<ActionKind, std::map<int64_t, int64_t>> moved;  // micro-batches by block
  for (const Action& action : build_schedule(w, plan, StepMode::train).actions) ++moved[action.kind][action.phase];
  for (int64_t block = 1; block <= 6; ++block) {
    EXPECT_EQ(moved[ActionKind::offload_activations][block], w.micro_batches);
    EXPECT_EQ(moved[ActionKind::store_activations][block], w.micro_batches);
    const int64_t back = block > 4 ? 0 : w.micro_batches;
    EXPECT_EQ(moved[ActionKind::read_activations][block], back);
    EXPECT_EQ(moved[ActionKind::fetch_activations][block], back);
  }
  for (const Action& action : build_schedule(w, plan, StepMode::evaluate).actions) {
    EXPECT_NE(action.kind, ActionKind::offload_activations);
    EXPECT_NE(action.kind, ActionKind::fetch_activations);
  }
}

}  // namespace
}  // namespace megatrain::tiny
