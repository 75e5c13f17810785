// Frozen weights that stay packed, wherever they live, give the same state hash as the same values unpacked.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

inline std::vector<Shape> packed_shapes() {
  const TrainRules experts{.freeze = {"*.experts.*"}};
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
                .mxfp4_source = true},
          Shape{.layers = 4,  // several blocks of fp8, the last ones partial
                .freezing = {.freeze = {"model.layers.*"}},
                .fp8 = true,
                .fp8_source = true,
                .hidden = 136,
                .ff = 140},
          Shape{.layers = 4,
                .clip = false,
                .precision = "fp32",
                .freezing = {.freeze = {"model.layers.[12].*", "*.q_proj.*"}},
                .fp8 = true,
                .fp8_source = true,
                .ff = 130},
          Shape{.layers = 3,
                .freezing = experts,
                .experts = 6,
                .experts_per_record = 4,
                .fp8 = true,
                .fp8_source = true,
                .hidden = 130}};
}

// The same values in bf16.
inline Shape unpacked(Shape shape) {
  shape.mxfp4_source = shape.fp8_source = false;
  shape.bf16_source = true;
  return shape;
}

// How many packed records lived in each place, over all plans tried.
struct PackedPlaces {
  int64_t on_device = 0, streaming = 0, resident = 0, on_disk = 0;
};

// Under the random plans of seeds [first, first + plans).
inline void expect_packed_as_unpacked(const Shape& shape, const std::string& device, uint64_t first, uint64_t plans,
                                      int64_t steps, PackedPlaces& places) {
  Tiny plain(unpacked(shape), device), packed(shape, device);
  const std::string expected = plain.train(plain.default_plan(), steps);
  ASSERT_EQ(packed.train(packed.default_plan(), steps), expected);
  const Workload& w = packed.workload();
  for (uint64_t seed = first; seed < first + plans; ++seed) {
    const Plan plan = random_plan(w, seed);
    for (int64_t r = 0; r < w.record_count(); ++r) {
      if (!w.is_packed(r)) continue;
      places.on_device += plan.state_on_device(r);
      places.streaming += plan.streams(r);
      places.resident += plan.copied(r);
      places.on_disk += plan.weights_on_disk(r);
    }
    ASSERT_EQ(packed.train(plan, steps), expected) << "plan " << seed << ": " << plan_to_json(w, plan).dump();
  }
}

inline void expect_packed_as_unpacked(const std::string& device, uint64_t plans, int64_t steps) {
  PackedPlaces places;
  uint64_t first = 0;
  for (const Shape& shape : packed_shapes()) {
    expect_packed_as_unpacked(shape, device, first, plans, steps, places);
    if (kSanitized) first += plans;
  }
  EXPECT_GT(places.on_device, 0);
  EXPECT_GT(places.streaming, 0);
  EXPECT_GT(places.resident, 0);
  EXPECT_GT(places.on_disk, 0);
}

}  // namespace megatrain::tiny
