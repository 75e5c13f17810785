// Dropout on any device compared with its definition, element by element.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/base/rng.h"
#include "megatrain/ops/ops.h"

namespace megatrain::testing {

struct DropoutCase {
  DType dtype;
  int64_t rows, cols;
  float rate;
  int64_t first_row = 0;
  bool accumulate = false;
  int64_t gap = 0;  // elements between rows
};

inline std::vector<DropoutCase> dropout_cases() {
  std::vector<DropoutCase> cases;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    cases.insert(cases.end(), {{dtype, 33, 700, 0.1f},
                               {dtype, 7, 1, 0.5f, 3},
                               {dtype, 5, 129, 0.9f, 1 << 20, true},
                               {dtype, 64, 96, 0.3f, 0, true, 5},
                               {dtype, 4, 40, 0.0f}});
  }
  return cases;
}

inline float rounded_to(DType dtype, float value) { return dtype == DType::bf16 ? to_float(to_bf16(value)) : value; }

inline void expect_dropped(Device& device, Ops& ops, Stream& stream, const DropoutCase& c) {
  const int64_t stride = c.cols + c.gap, elements = c.rows * stride, width = dtype_bytes(c.dtype);
  const auto drawn = [&](uint64_t purpose) {
    std::vector<float> values(static_cast<size_t>(elements));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = rounded_to(c.dtype, static_cast<float>(random_uniform(5, purpose, i) - 0.5));
    return values;
  };
  const auto bytes_of = [&](const std::vector<float>& values) {
    std::vector<std::byte> bytes(static_cast<size_t>(elements * width));
    for (size_t i = 0; i < values.size(); ++i) {
      const bf16 narrow = to_bf16(values[i]);
      std::memcpy(bytes.data() + i * static_cast<size_t>(width),
                  c.dtype == DType::bf16 ? static_cast<const void*>(&narrow) : &values[i], static_cast<size_t>(width));
    }
    return bytes;
  };
  const std::vector<float> x = drawn(1), before = drawn(2);
  std::vector<float> expected = before;
  const uint64_t key = 0x123456789abcdefull;
  int64_t dropped = 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    const uint64_t row_key = mix_key(key, static_cast<uint64_t>(c.first_row + row));
    for (int64_t col = 0; col < c.cols; ++col) {
      const size_t at = static_cast<size_t>(row * stride + col);
      const bool drops = is_dropped(row_key, col, dropout_threshold(c.rate));
      dropped += drops;
      const float kept = drops ? 0.0f : x[at] * dropout_scale(c.rate);
      expected[at] = rounded_to(c.dtype, c.accumulate ? before[at] + kept : kept);
    }
  }
  const double all = static_cast<double>(c.rows * c.cols), share = static_cast<double>(dropped) / all;
  EXPECT_NEAR(share, c.rate, 5 * std::sqrt(c.rate * (1 - c.rate) / all) + 1e-9);

  const Buffer from = device.allocate(static_cast<size_t>(elements * width), "test");
  const Buffer to = device.allocate(static_cast<size_t>(elements * width), "test");
  const std::vector<std::byte> x_bytes = bytes_of(x), out_bytes = bytes_of(before);
  stream.copy(from.data(), x_bytes.data(), x_bytes.size());
  stream.copy(to.data(), out_bytes.data(), out_bytes.size());
  const auto view = [&](const Buffer& buffer) {
    return View{.data = buffer.data(), .dtype = c.dtype, .rows = c.rows, .cols = c.cols, .row_stride = stride};
  };
  ops.dropout(stream, {.x = view(from),
                       .out = view(to),
                       .rate = c.rate,
                       .key = key,
                       .first_row = c.first_row,
                       .accumulate = c.accumulate});
  std::vector<std::byte> found(out_bytes.size());
  stream.copy(found.data(), to.data(), found.size());
  stream.synchronize();
  EXPECT_EQ(found, bytes_of(expected)) << c.rows << " x " << c.cols << " of " << dtype_name(c.dtype);
}

}  // namespace megatrain::testing
