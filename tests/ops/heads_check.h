// Heads moved between matrices, on any device, compared with the definition, element by element.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/base/rng.h"
#include "megatrain/ops/ops.h"

namespace megatrain::testing {

struct HeadsCase {
  DType dtype;
  int64_t rows, from_cols, to_cols;
  MoveHeads how;  // without its views
};

inline std::vector<HeadsCase> heads_cases() {
  std::vector<HeadsCase> cases;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    cases.push_back({dtype, 5, 27, 21, {.heads = 3, .width = 4, .from_begin = 2, .from_step = 8, .to_step = 7}});
    cases.push_back({dtype, 9, 17, 40, {.heads = 4, .width = 3, .from_begin = 11, .to_begin = 5, .to_step = 9}});
    cases.push_back({dtype, 9, 40, 17, {.heads = 4, .width = 3, .from_begin = 5, .from_step = 9, .to_begin = 11}});
    cases.push_back({dtype, 2, 12, 24, {.heads = 2, .width = 5, .from_step = 6, .to_step = 12, .zeros = 7}});
    cases.push_back({dtype, 33, 512, 768, {.heads = 4, .width = 128, .from_step = 128, .to_step = 192, .zeros = 64}});
    cases.push_back(
        {dtype, 40, 576, 1536, {.heads = 8, .width = 64, .from_begin = 512, .to_begin = 128, .to_step = 192}});
    cases.push_back(
        {dtype, 40, 1536, 576, {.heads = 8, .width = 64, .from_begin = 128, .from_step = 192, .to_begin = 512}});
    cases.push_back(
        {dtype, 5, 27, 21, {.heads = 3, .width = 4, .from_begin = 2, .from_step = 8, .to_step = 7, .add = true}});
    cases.push_back({dtype, 40, 512, 768, {.heads = 1, .width = 512, .to_begin = 256, .to_step = 512, .add = true}});
  }
  return cases;
}

inline void expect_heads_moved(Device& device, Ops& ops, Stream& stream, const HeadsCase& c) {
  const auto drawn = [&](uint64_t purpose, int64_t cols) {
    std::vector<float> values(static_cast<size_t>(c.rows * cols));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = to_float(to_bf16(static_cast<float>(random_uniform(5, purpose, i) - 0.5)));
    return values;
  };
  const std::vector<float> from = drawn(1, c.from_cols);
  std::vector<float> to = drawn(2, c.to_cols);
  const auto upload = [&](const std::vector<float>& values) {
    Buffer buffer = device.allocate(values.size() * static_cast<size_t>(dtype_bytes(c.dtype)), "test");
    std::vector<bf16> narrow;
    for (const float value : values) narrow.push_back(to_bf16(value));
    stream.copy(buffer.data(), c.dtype == DType::f32 ? static_cast<const void*>(values.data()) : narrow.data(),
                buffer.bytes());
    stream.synchronize();
    return buffer;
  };
  const Buffer from_buffer = upload(from), to_buffer = upload(to);
  MoveHeads args = c.how;
  args.from = matrix(from_buffer.data(), c.dtype, c.rows, c.from_cols);
  args.to = matrix(to_buffer.data(), c.dtype, c.rows, c.to_cols);
  ops.move_heads(stream, args);
  for (int64_t row = 0; row < c.rows; ++row) {
    const auto at = [&](int64_t col) -> float& { return to[static_cast<size_t>(row * c.to_cols + col)]; };
    std::vector<float> sums(static_cast<size_t>(args.width));
    for (int64_t head = 0; head < args.heads; ++head) {
      for (int64_t i = 0; i < args.width; ++i) {
        const float value = from[static_cast<size_t>(row * c.from_cols + args.from_begin + head * args.from_step + i)];
        sums[static_cast<size_t>(i)] += value;
        float& to_value = at(args.to_begin + head * args.to_step + i);
        to_value = args.add ? to_value + value : value;
      }
      for (int64_t i = 0; i < args.zeros; ++i) at(args.to_begin + head * args.to_step + args.width + i) = 0;
    }
    for (int64_t i = 0; args.to_step == 0 && i < args.width; ++i) at(args.to_begin + i) = sums[static_cast<size_t>(i)];
  }
  std::vector<std::byte> found(to_buffer.bytes());
  stream.copy(found.data(), to_buffer.data(), found.size());
  stream.synchronize();
  for (size_t i = 0; i < to.size(); ++i) {
    const float value = c.dtype == DType::f32 ? reinterpret_cast<const float*>(found.data())[i]
                                              : to_float(reinterpret_cast<const bf16*>(found.data())[i]);
    const float wanted = c.dtype == DType::f32 ? to[i] : to_float(to_bf16(to[i]));
    ASSERT_EQ(value, wanted) << "element " << i << " of " << c.rows << " x " << c.to_cols;
  }
}

}  // namespace megatrain::testing
