// Columns moved between two matrices, on any device, compared with the definition, element by element.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/base/rng.h"
#include "megatrain/ops/ops.h"

namespace megatrain::testing {

struct ColumnsCase {
  DType dtype;
  int64_t rows, cols;
  std::vector<int32_t> columns;
  int64_t gap = 0;  // elements between rows of both matrices
};

inline std::vector<ColumnsCase> columns_cases() {
  std::vector<int32_t> many(700);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>((i * 311) % 1009);
  std::vector<ColumnsCase> cases;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    cases.insert(
        cases.end(),
        {{dtype, 33, 70, {69, 0, 12}}, {dtype, 1, 1, {0}}, {dtype, 5, 129, {7}, 5}, {dtype, 17, 1009, many, 3}});
  }
  return cases;
}

inline void expect_columns_moved(Device& device, Ops& ops, Stream& stream, const ColumnsCase& c) {
  const int64_t count = std::ssize(c.columns), width = dtype_bytes(c.dtype);
  const auto drawn = [&](uint64_t purpose, int64_t cols) {
    std::vector<std::byte> bytes(static_cast<size_t>(c.rows * (cols + c.gap) * width));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random_below(5, purpose, i, 100) + 1);
    return bytes;
  };
  for (const bool take : {false, true}) {
    std::vector<std::byte> wide = drawn(1, c.cols), narrow = drawn(2, count);
    const Buffer on_device[] = {device.allocate(wide.size(), "test"), device.allocate(narrow.size(), "test"),
                                device.allocate(c.columns.size() * 4, "test")};
    stream.copy(on_device[0].data(), wide.data(), wide.size());
    stream.copy(on_device[1].data(), narrow.data(), narrow.size());
    stream.copy(on_device[2].data(), c.columns.data(), c.columns.size() * 4);
    stream.synchronize();
    const auto view = [&](const Buffer& buffer, int64_t cols) {
      return View{.data = buffer.data(), .dtype = c.dtype, .rows = c.rows, .cols = cols, .row_stride = cols + c.gap};
    };
    ops.move_columns(stream, {.wide = view(on_device[0], c.cols),
                              .columns = reinterpret_cast<const int32_t*>(on_device[2].data()),
                              .narrow = view(on_device[1], count),
                              .take = take});
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t j = 0; j < count; ++j) {
        std::byte* in_wide = wide.data() + (row * (c.cols + c.gap) + c.columns[static_cast<size_t>(j)]) * width;
        std::byte* in_narrow = narrow.data() + (row * (count + c.gap) + j) * width;
        std::memcpy(take ? in_narrow : in_wide, take ? in_wide : in_narrow, static_cast<size_t>(width));
        if (take) std::memset(in_wide, 0, static_cast<size_t>(width));
      }
    }
    std::vector<std::byte> found_wide(wide.size()), found_narrow(narrow.size());
    stream.copy(found_wide.data(), on_device[0].data(), wide.size());
    stream.copy(found_narrow.data(), on_device[1].data(), narrow.size());
    stream.synchronize();
    EXPECT_EQ(found_wide, wide) << c.rows << " x " << c.cols << " of " << dtype_name(c.dtype);
    EXPECT_EQ(found_narrow, narrow) << c.rows << " x " << count << " of " << dtype_name(c.dtype);
  }
}

}  // namespace megatrain::testing
