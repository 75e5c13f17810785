// A second kind of mixer (tests/support/recurrent_mixer.h) beside attention layers trains to the same bits under every
// plan, without plan, engine or trainer knowing about it. Two of its tensors stay fp32 in a bf16 model, in a record of
// their own, and it uses dropout.
#include <gtest/gtest.h>

#include "megatrain/model/layers/block.h"
#include "megatrain/model/layers/channels/mlp.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/slot_rings.h"
#include "megatrain/plan/verify.h"
#include "tests/support/recurrent_mixer.h"
#include "tests/pipeline/made_model.h"
#include "tests/support/fixtures.h"

namespace megatrain::tiny {

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kPlans = 4;
#else
constexpr int kPlans = 40;
#endif

// The configuration's model with a recurrence instead of attention in every second layer, starting with layer 1.
Model hybrid(const ModelConfig& config, const ModelShape& shape) {
  constexpr int64_t kWidth = 10, kEvery = 5;
  Model model = make_model(config, shape);
  for (size_t l = 1; l < model.layers.size(); l += 2) {
    std::vector<TensorSpec> tensors = toy::recurrent_tensors("toy." + std::to_string(l), config.hidden, kWidth);
    for (const TensorSpec& tensor : model.layers[l].records[0].tensors) {
      if (tensor.operand >= BlockOperand::post_norm && tensor.operand <= BlockOperand::down_bias)
        tensors.push_back(tensor);
    }
    for (TensorSpec& tensor : tensors) tensor.dtype = shape.dtype;
    std::vector<TensorSpec> own = toy::take_fp32_tensors(tensors);
    Layer& layer = model.layers[l] = {
        .kind = "recurrent", .records = {make_layout(std::move(tensors)), make_layout(std::move(own))}, .phases = {}};
    const LayerLayout& record = layer.records[0];
    const toy::Recurrent::Shape recurrent{
        .dtype = shape.dtype, .tokens = shape.tokens, .every = kEvery, .dropout = 0.2, .layer = l};
    Block::Mixers mixers;
    mixers.push_back(std::make_unique<toy::Recurrent>(recurrent, record, &layer.records[1]));
    Block::Channels channels;
    channels.push_back(std::make_unique<Mlp>(config.activation, shape.dtype, record));
    layer.phases.push_back(
        std::make_unique<Block>(block_shape(config, shape), record, std::move(mixers), std::move(channels)));
  }
  return model;
}

}  // namespace

class HybridModel : public ::testing::TestWithParam<Shape> {};

TEST_P(HybridModel, TrainsUnderEveryRandomPlanToOneStateHash) {
  MadeModel made(GetParam(), hybrid);
  const Workload& w = made.workload();
  ASSERT_NE(w.phase(1).levels[1].bytes, w.phase(2).levels[1].bytes) << "each kind of mixer has what it keeps";
  ASSERT_NE(w.phase(1).forward_flops, w.phase(2).forward_flops) << "and its cost";
  ASSERT_EQ(w.weight_bytes(3), 4 * w.record(3).elements) << "fp32 tensors stream as they are";
  const auto [expected, loss] = made.train(random_plan(w, 1000), 4);
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    const Plan plan = random_plan(w, seed);
    const auto violations = verify(build_schedule(w, plan, StepMode::train));
    ASSERT_TRUE(violations.empty()) << violations.front();
    ASSERT_EQ(made.train(plan, 4).first, expected) << "plan " << seed << ": " << plan_to_json(w, plan).dump();
  }
  EXPECT_NE(made.train(random_plan(w, 1000), 4, 1).first, expected) << "another seed drops other outputs";
  EXPECT_LT(made.train(random_plan(w, 0), 12).second, loss) << "the loss of one batch falls";
}

// The levels of a phase, by name.
std::vector<std::string> names_of(const PhaseWork& phase) {
  std::vector<std::string> names;
  for (const KeepWork& level : phase.levels) names.push_back(level.name);
  return names;
}

TEST(HybridLevels, TrainToTheSameBitsAtEveryLevelOfEachMixersOwnList) {
  MadeModel made({.layers = 4}, hybrid);
  const Workload& w = made.workload();
  EXPECT_EQ(names_of(w.phase(1)),
            (std::vector<std::string>{"nothing", "outputs", "attention", "products", "everything"}));
  EXPECT_EQ(names_of(w.phase(2)), (std::vector<std::string>{"nothing", "states", "products", "everything"}));
  Plan nothing{.records = std::vector<RecordPlan>(w.records.size()),
               .phases = std::vector<PhasePlan>(w.phases.size()),
               .sweeps = {4}};
  SlotRings(w).set(1, nothing.rings);
  nothing.rings.host_gradients = nothing.leaving(w);
  const std::string expected = made.train(nothing, 3).first;
  for (const Tier tier : {Tier::hbm, Tier::host, Tier::disk}) {
    for (const int64_t every : {1, 3}) {
      for (int32_t level = 0; level < 5; ++level) {
        Plan plan = nothing;
        plan.input_every = every;
        for (int64_t p = 1; p < w.head_phase(); ++p) {
          PhasePlan& phase = plan.phase(p);
          phase.keep = std::min(Keep{level}, w.phase(p).everything());
          phase.outputs = w.phase(p).level(phase.keep).may_wait ? tier : Tier::hbm;
        }
        plan.rings.output_slots = plan.outputs_wait_elsewhere() ? 2 : 0;
        plan.rings.activation_slabs = plan.activations_on_disk() ? 2 : 0;
        EXPECT_EQ(plan_from_json(w, plan_to_json(w, plan), "plan.json"), plan);
        EXPECT_EQ(made.train(plan, 3).first, expected) << plan_to_json(w, plan).dump();
      }
    }
  }
}

TEST(HybridLevels, OfAnotherPhasesListAreRefusedByName) {
  MadeModel made({.layers = 4}, hybrid);
  const Workload& w = made.workload();
  nlohmann::json plan = plan_to_json(w, random_plan(w, 0));
  plan["phases"][1]["keep"] = "attention";
  plan["phases"][1]["outputs"] = "hbm";
  EXPECT_NO_THROW(plan_from_json(w, plan, "plan.json"));
  for (const auto& [phase, level] : {std::pair{2, "attention"}, {1, "states"}}) {
    nlohmann::json other = plan;
    other["phases"][phase]["keep"] = level;
    expect_error(ExitCode::bad_config, {"plan.json", "phases[" + std::to_string(phase) + "].keep", level, "everything"},
                 [&] { plan_from_json(w, other, "plan.json"); });
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, HybridModel,
                         ::testing::Values(Shape{.layers = 4}, Shape{.layers = 3, .tied = true, .precision = "fp32"}));

}  // namespace megatrain::tiny
