// MoE models give one state hash, however a layer's experts are divided into records, and under every plan.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "megatrain/plan/plan.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

inline std::vector<Shape> expert_shapes() {
  // In the first, attention is small beside the experts, so it has a ring of slots of its own.
  return {Shape{.layers = 4, .experts = 12},
          Shape{.layers = 3, .clip = false, .precision = "fp32", .experts = 5},
          Shape{.layers = 3,
                .freezing = {.freeze = {"*.experts.[2-4].*", "*.mlp.gate.weight"}},
                .moments = "int8",
                .experts = 8},
          Shape{.layers = 4, .precision = "fp32", .experts = 8, .aux_loss = 0.2, .z_loss = 0.01},
          Shape{.layers = 3, .clip = false, .experts = 5, .z_loss = 0.02},
          Shape{.layers = 4, .experts = 6, .shared_expert = true},
          Shape{.layers = 3, .precision = "fp32", .experts = 5, .shared_expert = true, .aux_loss = 0.2},
          Shape{.layers = 4, .experts = 6, .latent = true},
          Shape{.layers = 3, .clip = false, .precision = "fp32", .moments = "int8", .experts = 8, .latent = true}};
}

// Trains `steps` steps under the random plans of seeds [first, first + plans), each with a random number of experts per
// record, and under the planner's plan with each of these sizes. Size 0: all experts in one record.
inline void expect_one_hash(const Shape& shape, const std::string& device, uint64_t plans, int64_t steps,
                            uint64_t first = 0) {
  std::string expected;
  const auto size_of = [&](uint64_t seed) {
    return static_cast<int64_t>(random_below(11, 1, seed, static_cast<uint64_t>(shape.experts) + 1));
  };
  std::set<int64_t> sizes = {0};
  for (uint64_t seed = first; seed < first + plans; ++seed) sizes.insert(size_of(seed));
  for (const int64_t each : sizes) {
    Shape grouped = shape;
    grouped.experts_per_record = each;
    Tiny tiny(grouped, device);
    const std::string found = tiny.train(tiny.default_plan(), steps);
    if (expected.empty()) expected = found;
    ASSERT_EQ(found, expected) << each << " in a record";
    for (uint64_t seed = first; seed < first + plans; ++seed) {
      if (each != size_of(seed)) continue;
      const Plan plan = random_plan(tiny.workload(), seed);
      ASSERT_EQ(tiny.train(plan, steps), expected)
          << each << " in a record, plan " << seed << ": " << plan_to_json(tiny.workload(), plan).dump();
    }
  }
}

}  // namespace megatrain::tiny
