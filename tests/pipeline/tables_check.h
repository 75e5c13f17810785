// Layers with tables of their own beside the embedding: rows come from wherever each table is, to the same bits.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/pipeline/made_model.h"
#include "tests/support/table_layer.h"

namespace megatrain::tiny {

inline constexpr int64_t kTableWidth = 10;

// Layers 1 and 3 look up tables of their own, the second of them frozen; attention in the others.
inline Model with_tables(const ModelConfig& config, const ModelShape& shape) {
  Model model = make_model(config, shape);
  model.layers[1] = toy::table_layer("first", config, shape, kTableWidth);
  model.layers[3] = toy::table_layer("second", config, shape, 2 * kTableWidth, false);
  return model;
}
// Records: 0 is the embedding, 1 attention, 2 and 3 the first table layer, 4 attention, 5 and 6 the second.
inline constexpr int64_t kFirstTable = 3, kSecondTable = 6;

inline std::vector<Shape> table_shapes() {
  return {Shape{.layers = 5}, Shape{.layers = 5, .pad_id = 7, .moments = "int8"},
          Shape{.layers = 5, .tied = true, .clip = false, .precision = "fp32"}};
}

inline void expect_one_hash_with_tables(const Shape& shape, const std::string& device, uint64_t plans) {
  MadeModel made(shape, with_tables, device);
  const Workload& w = made.workload();
  ASSERT_EQ(w.tables(), (std::vector<int64_t>{0, kFirstTable, kSecondTable}));
  ASSERT_EQ(w.phase(2).looks_up, kFirstTable);
  const auto [expected, loss] = made.train(random_plan(w, 1000), 4);
  int64_t apart = 0;  // plans in which one table lives on the device and another does not
  for (uint64_t seed = 0; seed < plans; ++seed) {
    const Plan plan = random_plan(w, seed);
    apart += plan.state_on_device(0) != plan.state_on_device(kFirstTable);
    for (const StepMode mode : {StepMode::train, StepMode::evaluate}) {
      const auto violations = verify(build_schedule(w, plan, mode));
      ASSERT_TRUE(violations.empty()) << violations.front();
    }
    ASSERT_EQ(made.train(plan, 4).first, expected) << "plan " << seed << ": " << plan_to_json(w, plan).dump();
  }
  EXPECT_GT(apart, 0);
  EXPECT_LT(made.train(random_plan(w, 0), 12).second, loss) << "the loss of one batch falls";
}

}  // namespace megatrain::tiny
