// An activation that several later phases read: its gradient is the sum over all its readers, and no plan changes a bit
// of it.
#include <gtest/gtest.h>

#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/pipeline/made_model.h"
#include "tests/support/sharing_layer.h"

namespace megatrain::tiny {

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSharingPlans = 4;
#else
constexpr int kSharingPlans = 40;
#endif
constexpr int64_t kSharedWidth = 10;

// Layer 0 provides it, layers 2 and 4 read it; attention layers are between them.
Model sharing(const ModelConfig& config, const ModelShape& shape) {
  Model model = make_model(config, shape);
  model.layers[0] = toy::giver_layer("giver", config.hidden, kSharedWidth, shape.dtype);
  for (const size_t l : {2, 4})
    model.layers[l] = toy::taker_layer("taker." + std::to_string(l), config.hidden, kSharedWidth, shape.dtype, 0);
  return model;
}

}  // namespace

class SharedActivations : public ::testing::TestWithParam<Shape> {};

TEST_P(SharedActivations, TrainUnderEveryRandomPlanToOneStateHash) {
  MadeModel made(GetParam(), sharing);
  const Workload& w = made.workload();
  ASSERT_EQ(w.phase(1).shared_width, kSharedWidth);
  ASSERT_EQ(w.phase(3).reads, 1);
  ASSERT_EQ(w.last_reader(1), 5);
  const auto [expected, loss] = made.train(random_plan(w, 1000), 4);
  for (uint64_t seed = 0; seed < kSharingPlans; ++seed) {
    const Plan plan = random_plan(w, seed);
    for (const StepMode mode : {StepMode::train, StepMode::evaluate}) {
      const auto violations = verify(build_schedule(w, plan, mode));
      ASSERT_TRUE(violations.empty()) << violations.front();
    }
    ASSERT_EQ(made.train(plan, 4).first, expected) << "plan " << seed << ": " << plan_to_json(w, plan).dump();
    const int64_t widest = *std::max_element(plan.sweeps.begin(), plan.sweeps.end());
    EXPECT_EQ(memory_need(w, plan).bytes_of(ResourceKind::shared), widest * w.shared_bytes(1));
    EXPECT_EQ(memory_need(w, plan).bytes_of(ResourceKind::shared_gradient), widest * w.shared_bytes(1));
  }
  EXPECT_LT(made.train(random_plan(w, 0), 12).second, loss) << "the loss of one batch falls";
}

INSTANTIATE_TEST_SUITE_P(Shapes, SharedActivations,
                         ::testing::Values(Shape{.layers = 5},
                                           Shape{.layers = 5, .tied = true, .clip = false, .precision = "fp32"}));

TEST(SharedActivation, HasTheGradientOfAllItsReaders) {
  MadeModel made({.layers = 5, .clip = false, .precision = "fp32"}, sharing);
  made.expect_gradients(random_plan(made.workload(), 1000), 1, {0, 37, 101, 150, 239});
}

}  // namespace megatrain::tiny
