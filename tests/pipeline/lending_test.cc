#include "tests/pipeline/lending_check.h"

namespace megatrain::tiny {

constexpr uint64_t kLendingPlans = kSanitized ? 1 : 10;

TEST(Lending, WhateverIsWrittenThereBetweenStepsChangesNoBit) {
  for (const Shape& shape : sampling_shapes()) expect_lent_memory_may_change(shape, "cpu", kLendingPlans);
}

TEST(Lending, AnswersComeFromLentMemoryAloneAndChangeNoBit) {
  for (const Shape& shape : sampling_shapes()) expect_answers_in_lent_memory(shape, "cpu", kLendingPlans);
}

TEST(Lending, TheDeviceHoldsWhatThePlanSaid) {
  for (const Shape& shape : sampling_shapes()) {
    Tiny tiny(shape);
    const Workload& w = tiny.workload();
    EXPECT_GT(w.generation_bytes, 0);
    for (uint64_t seed = 0; seed < kLendingPlans; ++seed) {
      const Plan plan = random_plan(w, seed);
      const auto trainer = tiny.trainer(plan);
      const Ledger& ledger = tiny.machine().device->ledger();
      EXPECT_EQ(ledger.bytes(), memory_need(w, plan).hbm_bytes()) << ledger.table();
    }
  }
}

TEST(Lending, ATrainerWithoutSamplesLendsNothingAndIsPlannedWithoutThem) {
  Tiny tiny({});
  EXPECT_EQ(tiny.workload().generation_bytes, 0);
  const Plan plan = tiny.default_plan();
  EXPECT_EQ(memory_need(tiny.workload(), plan).bytes_of(ResourceKind::generation), 0);
  EXPECT_TRUE(tiny.trainer(plan)->lend().empty());
}

}  // namespace megatrain::tiny
