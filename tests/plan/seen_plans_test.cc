#include "megatrain/plan/seen_plans.h"

#include <set>

#include <gtest/gtest.h>

#include "megatrain/io/json.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "tests/support/dense_workload.h"

namespace megatrain {

namespace {

Workload six_blocks() {
  Workload w;
  w.micro_batches = 4;
  w.micro_tokens = 128;
  make_dense(w, {.hidden = 128, .vocab = 1000, .blocks = 6, .block_elements = 1 << 16, .head_elements = 1 << 17});
  return w;
}

}  // namespace

TEST(SeenPlans, APlanIsNewOnceAndAnyOtherPlanIsNew) {
  const Workload w = six_blocks();
  SeenPlans seen;
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Plan plan = random_plan(w, seed);
    const bool is_new = texts.insert(plan_to_json(w, plan).dump()).second;
    EXPECT_EQ(seen.add(plan), is_new) << seed;
    EXPECT_FALSE(seen.add(Plan(plan))) << seed;
  }
}

TEST(SeenPlans, EveryFieldOfAPlanMakesItAnother) {
  const Workload w = six_blocks();
  const Plan plan = random_plan(w, 0);
  SeenPlans seen;
  seen.add(plan);
  const auto expect_new = [&](auto&& change) {
    Plan other = plan;
    change(other);
    EXPECT_TRUE(seen.add(other)) << plan_to_json(w, other);
  };
  expect_new([](Plan& p) { ++p.experts_per_record; });
  expect_new([](Plan& p) { ++p.input_every; });
  expect_new([](Plan& p) { p.serial = !p.serial; });
  expect_new([](Plan& p) { p.sweeps.push_back(1); });
  Rings::each_field([&](const char*, auto field) { expect_new([&](Plan& p) { ++(p.rings.*field); }); });
  const auto next = [](auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    value = value == Value{} ? static_cast<Value>(1) : Value{};
  };
  RecordPlan::each_field([&](const char*, auto field) { expect_new([&](Plan& p) { next(p.record(3).*field); }); });
  PhasePlan::each_field([&](const char*, auto field) { expect_new([&](Plan& p) { next(p.phase(3).*field); }); });
}

}  // namespace megatrain
