// Learned factors on any device, compared with sums in double.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/ops/harness.h"

namespace megatrain::testing {

inline void expect_scaled(Harness& h, DType dtype, int64_t rows, int64_t cols) {
  h.start(3);
  const Vector x = h.random(rows * cols, dtype), factor = h.random(1, dtype);
  const Tensor from = h.filled(dtype, rows, cols, x, 5), by = h.filled(dtype, 1, 1, factor),
               to = h.poisoned(dtype, rows, cols, 2);
  for (const View& out : {to.view, from.view})
    h.ops.scale_all(h.stream, {.x = from.view, .factor = by.view, .out = out});
  Vector wanted = x;
  for (double& value : wanted) value = stored(static_cast<float>(value) * static_cast<float>(factor[0]), dtype);
  EXPECT_EQ(h.read(to), wanted);
  EXPECT_EQ(h.read(from), wanted) << "in place";
  h.ops.scale_all(h.stream, {.x = from.view, .times = 1.5f, .out = to.view});
  for (double& value : wanted) value = stored(static_cast<float>(value) * 1.5f, dtype);
  EXPECT_EQ(h.read(to), wanted) << "without a stored factor";
}

// Tokens choose 2 of 5 experts; no token chooses expert 3.
inline void expect_choices_scaled(Harness& h, DType dtype, int64_t tokens) {
  constexpr int64_t kExperts = 5, kChoices = 2;
  h.start(7);
  const int64_t pairs = tokens * kChoices;
  std::vector<int32_t> experts, begin{0}, pair_of_row;
  for (int64_t t = 0; t < tokens; ++t) {
    experts.push_back(static_cast<int32_t>(t % 3));
    experts.push_back(t % 2 == 0 ? 4 : static_cast<int32_t>((t + 1) % 3));
  }
  for (int32_t expert = 0; expert < kExperts; ++expert) {
    for (int32_t pair = 0; pair < pairs; ++pair) {
      if (experts[static_cast<size_t>(pair)] == expert) pair_of_row.push_back(pair);
    }
    begin.push_back(static_cast<int32_t>(pair_of_row.size()));
  }
  const Vector shares = h.random(pairs, DType::f32), factors = h.random(kExperts, dtype),
               grads = h.random(pairs, DType::f32), before = h.random(kExperts, DType::f32);
  const Tensor shares_d = h.filled(DType::f32, 1, pairs, shares), factors_d = h.filled(dtype, 1, kExperts, factors),
               weights = h.poisoned(DType::f32, 1, pairs), grad_weights = h.filled(DType::f32, 1, pairs, grads),
               grad_factors = h.filled(DType::f32, 1, kExperts, before);
  const Buffer experts_d = h.upload(experts), begin_d = h.upload(begin), rows_d = h.upload(pair_of_row);
  h.ops.scale_choices(h.stream, {.experts = pointer<int32_t>(experts_d),
                                 .shares = shares_d.view.as<float>(),
                                 .pairs = pairs,
                                 .factors = factors_d.view,
                                 .weights = weights.view.as<float>()});
  h.ops.scale_choices_backward(h.stream, {.begin = pointer<int32_t>(begin_d),
                                          .pair_of_row = pointer<int32_t>(rows_d),
                                          .shares = shares_d.view.as<float>(),
                                          .factors = factors_d.view,
                                          .grad_weights = grad_weights.view.as<float>(),
                                          .grad_factors = grad_factors.view,
                                          .accumulate = true});
  Vector wanted_factors = before;
  const Vector found = h.read(weights), found_grads = h.read(grad_weights), found_factors = h.read(grad_factors);
  for (size_t pair = 0; pair < experts.size(); ++pair) {
    const auto expert = static_cast<size_t>(experts[pair]);
    EXPECT_NEAR(found[pair], shares[pair] * factors[expert], 1e-6);
    EXPECT_NEAR(found_grads[pair], grads[pair] * factors[expert], 1e-6);
    wanted_factors[expert] += grads[pair] * shares[pair];
  }
  for (size_t expert = 0; expert < kExperts; ++expert) EXPECT_NEAR(found_factors[expert], wanted_factors[expert], 1e-4);
}

inline void check_scales(Harness& h) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(dtype_name(dtype));
    expect_scaled(h, dtype, 3, 7);
    expect_scaled(h, dtype, 33, 520);
    expect_choices_scaled(h, dtype, 1);
    expect_choices_scaled(h, dtype, 700);
  }
}

}  // namespace megatrain::testing
