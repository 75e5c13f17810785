// Whole training steps on the GPU: parity with transformers, and plan invariance.
#include <set>

#include "megatrain/base/units.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"

#include "tests/parity/parity.h"
#include "tests/pipeline/adapter_check.h"
#include "tests/pipeline/expert_groups_check.h"
#include "tests/pipeline/lending_check.h"
#include "tests/pipeline/non_finite_check.h"
#include "tests/pipeline/packed_check.h"
#include "tests/pipeline/tables_check.h"
#include "tests/pipeline/tiny.h"

namespace megatrain {
namespace {

class CudaGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaGolden, Fp32LossGradientsAndTenClippedStepsMatchTransformers) {
  parity::expect_fp32_parity(GetParam(), {.device = "cuda", .micro_batch = 2});
}

TEST_P(CudaGolden, Bf16LossAndGradientDirectionsMatchTransformers) {
  parity::expect_bf16_parity(GetParam(), {.device = "cuda", .micro_batch = 2});
}

INSTANTIATE_TEST_SUITE_P(Models, CudaGolden, ::testing::ValuesIn(parity::golden_names()),
                         [](const auto& info) { return info.param; });

class CudaLongGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaLongGolden, LossesGradientsAndClippedStepsMatchTransformers) {
  parity::expect_fp32_parity(GetParam(), {.device = "cuda", .micro_batch = 1});
  parity::expect_fp32_parity(GetParam(), {.device = "cuda", .micro_batch = 1, .mlp_chunk = 3000});
  parity::expect_bf16_parity(GetParam(), {.device = "cuda", .micro_batch = 1});
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLongGolden, ::testing::ValuesIn(parity::golden_names(true)),
                         [](const auto& info) { return info.param; });

TEST(CudaTables, OfLayersTrainUnderEveryRandomPlanToOneStateHash) {
  for (const tiny::Shape& shape : tiny::table_shapes()) tiny::expect_one_hash_with_tables(shape, "cuda", 12);
}

TEST(CudaAdapters, TrainUnderEveryRandomPlanToOneStateHash) {
  for (const tiny::AdapterCase& c : tiny::adapter_cases()) tiny::expect_one_hash_with_adapters(c, "cuda", 4, 3);
}

TEST(CudaPacked, FrozenWeightsGiveTheHashOfUnpackedOnesUnderEveryPlan) {
  tiny::expect_packed_as_unpacked("cuda", 12, 3);
}

TEST(CudaPlanInvariance, EveryRandomPlanGivesOneStateHash) {
  constexpr int64_t kSteps = 4;
  constexpr uint64_t kPlans = 20;
  for (const tiny::Shape& shape :
       {tiny::Shape{}, tiny::Shape{.layers = 7, .tied = true, .clip = false}, tiny::Shape{.moments = "bf16"},
        tiny::Shape{.clip = false, .moments = "int8"}, tiny::Shape{.clip = false, .master = "stochastic"},
        tiny::Shape{.partly_filled = true, .cut = true},
        tiny::Shape{.layers = 7, .tied = true, .moments = "int8", .master = "stochastic"},
        tiny::Shape{.freezing = {.freeze = {"*.k_proj.weight", "model.layers.1.*"}}, .bf16_source = true}}) {
    tiny::Tiny model(shape, "cuda");
    const std::string expected = model.train(model.default_plan(), kSteps);
    ASSERT_EQ(model.train(model.default_plan(), kSteps), expected) << "the same plan again";
    std::set<std::string> schedules;
    int streaming = 0;
    for (uint64_t seed = 0; seed < kPlans; ++seed) {
      const Plan plan = random_plan(model.workload(), seed);
      schedules.insert(build_schedule(model.workload(), plan, StepMode::train).hash());
      streaming += tiny::streams_more_than_slots_hold(model.workload(), plan);
      ASSERT_EQ(model.train(plan, kSteps), expected)
          << "plan " << seed << ": " << plan_to_json(model.workload(), plan).dump();
    }
    EXPECT_GE(schedules.size(), kPlans / 2);
    EXPECT_GE(3 * streaming, static_cast<int>(kPlans)) << "at least a third stream more than the slots hold";
  }
}

TEST(CudaExpertGroups, AndEveryRandomPlanGiveOneStateHash) {
  constexpr int64_t kSteps = 4;
  constexpr uint64_t kPlans = 30;
  for (const tiny::Shape& shape : tiny::expert_shapes()) tiny::expect_one_hash(shape, "cuda", kPlans, kSteps);
}

TEST(CudaLending, WhateverIsWrittenThereBetweenStepsChangesNoBit) {
  for (const tiny::Shape& shape : tiny::sampling_shapes()) tiny::expect_lent_memory_may_change(shape, "cuda", 10);
}

TEST(CudaLending, AnswersComeFromLentMemoryAloneAndChangeNoBit) {
  for (const tiny::Shape& shape : tiny::sampling_shapes()) tiny::expect_answers_in_lent_memory(shape, "cuda", 10);
}

TEST(CudaNonFinite, AnInfiniteMomentIsNamedByStepLayerAndTensorWhereverItIsUpdated) {
  tiny::expect_infinite_moment_is_named("cuda", {});
  tiny::expect_infinite_moment_is_named("cuda", {.clip = false, .precision = "fp32"});
}

TEST(CudaNonFinite, TheNextStepFindsAnUpdateThatWasNotFinite) { tiny::expect_next_step_finds_it("cuda"); }

TEST(CudaMemory, SteadyStateAllocatesNothingAndTheDriverAgreesWithThePlan) {
  tiny::Tiny model({.layers = 6, .micro_batches = 4}, "cuda");
  const Plan plan = model.default_plan();
  const auto trainer = model.trainer(plan);
  const Device& device = *model.machine().device;
  model.step(*trainer, 1);
  const int64_t allocations = device.ledger().allocations() + device.host_ledger().allocations();
  for (int64_t step = 2; step <= 6; ++step) model.step(*trainer, step);
  trainer->drain();
  EXPECT_EQ(device.ledger().allocations() + device.host_ledger().allocations(), allocations);
  const int64_t planned = memory_need(model.workload(), plan).hbm_bytes();
  EXPECT_LE(std::abs(device.memory_used() - planned), 256 * kMiB)
      << "planned " << format_bytes(planned) << ", used " << format_bytes(device.memory_used());
}

}  // namespace
}  // namespace megatrain
