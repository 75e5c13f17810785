// Frozen experts that stay packed, wherever they live: one state hash, that of the same values unpacked.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

inline std::vector<Shape> packed_shapes() {
  const FreezeRules experts{.freeze = {"*.experts.*"}};
  return {Shape{.layers = 4, .freezing = experts, .experts = 6, .mxfp4_experts = true, .mxfp4_source = true},
          Shape{.layers = 3,
                .clip = false,
                .precision = "fp32",
                .freezing = {.freeze = {"*.experts.*", "model.embed_tokens.*", "model.layers.0.*"}},
                .experts = 5,
                .experts_per_record = 2,
                .mxfp4_experts = true,
                .mxfp4_source = true},
          Shape{.layers = 3,
                .freezing = experts,
                .moments = "int8",
                .experts = 6,
                .experts_per_record = 4,
                .aux_loss = 0.1,
                .mxfp4_experts = true,
                .mxfp4_source = true}};
}

inline void expect_packed_as_unpacked(const Shape& shape, const std::string& device, uint64_t plans, int64_t steps) {
  Shape plain = shape;
  plain.mxfp4_source = false;
  plain.bf16_source = true;
  Tiny unpacked(plain, device), packed(shape, device);
  const std::string expected = unpacked.train(unpacked.default_plan(), steps);
  ASSERT_EQ(packed.train(packed.default_plan(), steps), expected);
  const Workload& w = packed.workload();
  int64_t on_device = 0, coming = 0, resident = 0, on_disk = 0;
  for (uint64_t seed = 0; seed < plans; ++seed) {
    const Plan plan = random_plan(w, seed);
    for (int64_t r = 0; r < w.record_count(); ++r) {
      if (!w.is_packed(r)) continue;
      on_device += plan.state_on_device(r);
      coming += plan.streams(r);
      resident += plan.copied(r);
      on_disk += plan.weights_on_disk(r);
    }
    ASSERT_EQ(packed.train(plan, steps), expected) << "plan " << seed << ": " << plan_to_json(w, plan).dump();
  }
  EXPECT_GT(on_device, 0);
  EXPECT_GT(coming, 0);
  EXPECT_GT(resident, 0);
  EXPECT_GT(on_disk, 0);
}

}  // namespace megatrain::tiny
