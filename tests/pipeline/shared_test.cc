// An activation that later phases read beside the next one: its gradient is the sum over all its readers, and no plan
// changes a bit of it.
#include <gtest/gtest.h>

#include <cmath>

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

// Layer 0 gives, layers 2 and 4 take; attention between them.
Model sharing(const ModelConfig& config, const ModelShape& shape) {
  Model model = make_model(config, shape);
  model.layers[0] = toy::giver_layer("giver", config.hidden, kSharedWidth, shape.dtype);
  for (const size_t l : {2, 4})
    model.layers[l] = toy::taker_layer("taker." + std::to_string(l), config.hidden, kSharedWidth, shape.dtype, 0);
  return model;
}

float* giver_weight(Trainer& trainer, int64_t at) {
  const LayerRecord& giver = trainer.records()[1];
  EXPECT_EQ(giver.layout().tensors.front().name, "giver.first.weight");
  return reinterpret_cast<float*>(giver.weights()) + giver.layout().tensors.front().offset + at;
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

// With a huge epsilon AdamW goes down the gradient itself.
TEST(SharedActivation, HasTheGradientOfAllItsReaders) {
  const Shape shape{.layers = 5, .clip = false, .precision = "fp32"};
  MadeModel made(shape, sharing);
  const Plan plan = random_plan(made.workload(), 1000);
  constexpr double kRate = 1e-3, kEps = 1e6, kStep = 1e-2;
  const auto loss_with = [&](int64_t at, double change, double* gradient) {
    const auto trainer = made.trainer(plan);
    float* weight = giver_weight(*trainer, at);
    *weight += static_cast<float>(change);
    const double before = *weight;
    const AdamWStep adamw{.lr = kRate * kEps, .beta1 = 0, .beta2 = 0, .eps = kEps, .weight_decay = 0, .t = 1};
    const double loss = trainer->step(make_batch(shape, 0), {.adamw = adamw, .clip = 0}).loss;
    trainer->drain();
    if (gradient) *gradient = (before - *giver_weight(*trainer, at)) / kRate;
    return loss;
  };
  double largest = 0;
  for (const int64_t at : {0, 37, 101, 150, 239}) {
    double gradient = 0;
    loss_with(at, 0, &gradient);
    const double expected = (loss_with(at, kStep, nullptr) - loss_with(at, -kStep, nullptr)) / (2 * kStep);
    EXPECT_NEAR(gradient, expected, 2e-3 + 0.01 * std::abs(expected)) << at;
    largest = std::max(largest, std::abs(expected));
  }
  EXPECT_GT(largest, 0.02) << "the gradients are far above what rounding makes";
}

}  // namespace megatrain::tiny
