// The layer interface: a model whose layers have two phases over two records of different sizes, with another width
// between them, trains to the same bits under every plan.
#include <gtest/gtest.h>

#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/support/toy_layer.h"
#include "tests/pipeline/made_model.h"

namespace megatrain::tiny {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kToyPlans = 6;
#else
constexpr int kToyPlans = 60;
#endif

class ToyLayers : public ::testing::TestWithParam<Shape> {};

TEST_P(ToyLayers, TrainUnderEveryRandomPlanToOneStateHash) {
  MadeModel toy(GetParam(), toy::make_model);
  const Workload& w = toy.workload();
  ASSERT_GT(w.layer_phases(), GetParam().layers) << "some layers have two phases";
  ASSERT_NE(w.record(2).elements, w.record(3).elements) << "a toy layer's records are of unlike sizes";
  ASSERT_NE(w.phase(2).width, w.phase(3).width) << "the width changes between its phases";
  const auto [expected, loss] = toy.train(random_plan(w, 1000), 4);
  for (uint64_t seed = 0; seed < kToyPlans; ++seed) {
    const Plan plan = random_plan(w, seed);
    const auto violations = verify(build_schedule(w, plan, StepMode::train));
    ASSERT_TRUE(violations.empty()) << violations.front();
    ASSERT_EQ(toy.train(plan, 4).first, expected) << "plan " << seed << ": " << plan_to_json(w, plan).dump();
  }
  EXPECT_LT(toy.train(random_plan(w, 0), 12).second, loss) << "the loss of one batch falls";
}

TEST_P(ToyLayers, TakeTheMemoryThatThePlanSaid) {
  MadeModel toy(GetParam(), toy::make_model);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Plan plan = random_plan(toy.workload(), seed);
    const auto trainer = toy.trainer(plan);
    const MemoryNeed need = memory_need(toy.workload(), plan);
    EXPECT_EQ(toy.device().ledger().bytes(), need.hbm_bytes()) << toy.device().ledger().table();
    EXPECT_EQ(toy.device().host_ledger().bytes(), need.host_bytes()) << toy.device().host_ledger().table();
  }
}

TEST_P(ToyLayers, ArePlannedFor) {
  MadeModel toy(GetParam(), toy::make_model);
  const Workload& w = toy.workload();
  const Plan roomy = make_plan(w, {.gpu_bytes = int64_t{1} << 40, .host_bytes = int64_t{1} << 40}, {}, nullptr);
  const int64_t most = memory_need(w, roomy).hbm_bytes();
  const std::string expected = toy.train(roomy, 3).first;
  int planned = 0;
  for (int64_t tenth = 3; tenth <= 10; ++tenth) {
    Plan plan;
    try {
      plan = make_plan(w, {.gpu_bytes = most * tenth / 10, .host_bytes = int64_t{1} << 40}, {}, nullptr);
    } catch (const Error&) {
      continue;
    }
    ++planned;
    EXPECT_NO_THROW(check_plan(w, plan));
    EXPECT_LE(memory_need(w, plan).hbm_bytes(), most * tenth / 10);
    EXPECT_EQ(toy.train(plan, 3).first, expected) << plan_to_json(w, plan).dump();
  }
  EXPECT_GE(planned, 3);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ToyLayers,
                         ::testing::Values(Shape{.layers = 4}, Shape{.layers = 5, .tied = true, .clip = false},
                                           Shape{.layers = 3, .micro_batches = 8, .precision = "fp32"}));

}  // namespace megatrain::tiny
