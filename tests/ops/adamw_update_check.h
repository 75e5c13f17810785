// AdamW as an op, compared with adamw_cpu on the same numbers: dense and by rows, split and plain master, every bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "megatrain/base/split_master.h"
#include "tests/ops/adamw_hash.h"
#include "tests/ops/harness.h"

namespace megatrain::testing {

struct AdamWPlanes {
  std::vector<float> m, v, master;
  std::vector<bf16> weight;
  std::vector<uint16_t> low;
  bool operator==(const AdamWPlanes& other) const {
    const auto bits = [](const auto& a, const auto& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
    };
    return bits(m, other.m) && bits(v, other.v) && bits(master, other.master) && bits(weight, other.weight) &&
           bits(low, other.low);
  }
};

inline AdamWPlanes random_planes(Harness& h, int64_t count, bool split) {
  const auto floats = [&](double amplitude) {
    const Vector values = h.random(count, DType::f32, amplitude);
    return std::vector<float>(values.begin(), values.end());
  };
  AdamWPlanes p{.m = floats(0.1), .v = floats(0.1), .master = floats(1)};
  for (float& v : p.v) v = std::fabs(v);
  if (split) {
    for (const float x : p.master) p.weight.push_back(master_high(x)), p.low.push_back(master_low(x));
    p.master.clear();
  }
  return p;
}

// Runs the op on device copies of the planes; returns the mark that it leaves over `marked`. rows empty: dense.
inline int32_t mark_on_device(Harness& h, AdamWPlanes& p, const AdamWScalars& scalars, const std::vector<float>& grad,
                              float clip, const std::vector<int32_t>& rows, int64_t cols, int32_t marked,
                              int32_t mark) {
  const int64_t count = static_cast<int64_t>(p.m.size());
  const Buffer m = h.upload(p.m), v = h.upload(p.v), gradient = h.upload(grad),
               factor = h.upload(std::vector<float>{clip}), not_finite = h.upload(std::vector<int32_t>{marked}),
               touched = h.upload(rows), master = h.upload(p.master), weight = h.upload(p.weight),
               low = h.upload(p.low);
  const bool split = !p.weight.empty();
  h.ops.adamw(h.stream, {.scalars = scalars,
                         .count = count,
                         .grad = pointer<float>(gradient),
                         .m = pointer<float>(m),
                         .v = pointer<float>(v),
                         .weight = split ? pointer<bf16>(weight) : nullptr,
                         .low = split ? pointer<uint16_t>(low) : nullptr,
                         .master = split ? nullptr : pointer<float>(master),
                         .clip = pointer<float>(factor),
                         .not_finite = pointer<int32_t>(not_finite),
                         .mark = mark,
                         .rows = rows.empty() ? nullptr : pointer<int32_t>(touched),
                         .row_count = static_cast<int64_t>(rows.size()),
                         .cols = cols});
  h.fetch(p.m, m);
  h.fetch(p.v, v);
  h.fetch(p.master, master);
  h.fetch(p.weight, weight);
  h.fetch(p.low, low);
  std::vector<int32_t> flag(1);
  h.fetch(flag, not_finite);
  return flag[0];
}

// Returns whether everything stayed finite.
inline bool update_on_device(Harness& h, AdamWPlanes& p, const AdamWScalars& scalars, const std::vector<float>& grad,
                             float clip, const std::vector<int32_t>& rows, int64_t cols) {
  return mark_on_device(h, p, scalars, grad, clip, rows, cols, 0, 1) == 0;
}

// adamw_cpu, row by row.
inline bool update_on_host(AdamWPlanes& p, AdamWScalars scalars, const std::vector<float>& grad, float clip,
                           const std::vector<int32_t>& rows, int64_t cols) {
  const int64_t count = static_cast<int64_t>(p.m.size());
  const bool split = !p.weight.empty();
  scalars.clip = clip;
  bool finite = true;
  for (int64_t row = 0; row < count / cols; ++row) {
    const auto found = std::lower_bound(rows.begin(), rows.end(), static_cast<int32_t>(row));
    const bool touched = rows.empty() || (found != rows.end() && *found == row);
    const float* g = grad.data() + (rows.empty() ? row : found - rows.begin()) * cols;
    std::vector<bf16> rounded(static_cast<size_t>(cols));
    if (touched && split) std::transform(g, g + cols, rounded.begin(), [](float x) { return to_bf16(x); });
    const size_t at = static_cast<size_t>(row * cols);
    finite &= adamw_cpu({.scalars = scalars,
                         .count = cols,
                         .grad_bf16 = touched && split ? rounded.data() : nullptr,
                         .grad_f32 = touched && !split ? g : nullptr,
                         .m = p.m.data() + at,
                         .v = p.v.data() + at,
                         .weight = split ? p.weight.data() + at : nullptr,
                         .low = split ? p.low.data() + at : nullptr,
                         .master = split ? nullptr : p.master.data() + at},
                        Simd::scalar);
  }
  return finite;
}

inline void check_adamw_update(Harness& h) {
  h.start(51);
  const AdamWScalars scalars = adamw_hash_scalars(3);
  for (const bool split : {true, false}) {
    for (const int64_t cols : {int64_t{1}, int64_t{5}, int64_t{64}, int64_t{1000}}) {
      for (const bool by_rows : {false, true}) {
        const int64_t table = cols == 1 ? 70001 : 211;
        std::vector<int32_t> rows;
        for (int32_t row = 0; by_rows && row < table; row += 1 + row % 3) rows.push_back(row);
        const Vector values = h.random((by_rows ? static_cast<int64_t>(rows.size()) : table) * cols, DType::f32, 0.01);
        std::vector<float> grad(values.begin(), values.end());
        const AdamWPlanes start = random_planes(h, table * cols, split);
        AdamWPlanes there = start, here = start;
        EXPECT_TRUE(update_on_device(h, there, scalars, grad, 0.5f, rows, cols));
        EXPECT_TRUE(update_on_host(here, scalars, grad, 0.5f, rows, cols));
        EXPECT_TRUE(there == here) << "split " << split << ", " << cols << " columns, by rows " << by_rows;
        EXPECT_FALSE(there == start);

        there = start;
        EXPECT_TRUE(update_on_device(h, there, scalars, grad, std::nanf(""), rows, cols));
        EXPECT_TRUE(there == start) << "a factor that is not a number changes nothing";

        for (const float odd : {std::nanf(""), INFINITY, 0x1.0p120f, 0x1.0p70f}) {  // the square of the last overflows
          grad[grad.size() / 2] = odd;
          there = here = start;
          EXPECT_FALSE(update_on_device(h, there, scalars, grad, 1.0f, rows, cols)) << odd;
          EXPECT_FALSE(update_on_host(here, scalars, grad, 1.0f, rows, cols)) << odd;
        }
      }
    }
  }
}

// A non-finite element in either moment makes the update leave its mark, with or without a gradient, unless another
// mark is already there.
inline void check_adamw_marks(Harness& h) {
  h.start(52);
  const AdamWScalars scalars = adamw_hash_scalars(3);
  const int64_t table = 70, cols = 12;
  for (const bool split : {true, false}) {
    for (const bool by_rows : {false, true}) {
      const std::vector<int32_t> rows = by_rows ? std::vector<int32_t>{3, 30} : std::vector<int32_t>{};
      const std::vector<float> grad(static_cast<size_t>((by_rows ? 2 : table) * cols), 0.01f);
      const AdamWPlanes start = random_planes(h, table * cols, split);
      const auto mark_of = [&](bool second, size_t at, float value, int32_t marked) {
        AdamWPlanes planes = start;
        (second ? planes.v : planes.m)[at] = value;
        return mark_on_device(h, planes, scalars, grad, 1.0f, rows, cols, marked, 9);
      };
      for (const bool second : {false, true}) {
        for (const size_t at : {size_t{0}, size_t{3 * cols + 5}, size_t{table * cols - 1}}) {
          EXPECT_EQ(mark_of(second, at, 0.5f, 0), 0);
          for (const float bad : {INFINITY, std::nanf("")}) {
            EXPECT_EQ(mark_of(second, at, bad, 0), 9) << "split " << split << ", second " << second << " at " << at;
            EXPECT_EQ(mark_of(second, at, bad, 4), 4) << "the first mark stays";
          }
        }
      }
    }
  }
}

inline void check_clip_factor(Harness& h) {
  for (const double clip : {0.0, 0.5, 1.0, 1e9}) {
    for (const double last : {0.0, 3.0, double{INFINITY}, std::nan("")}) {
      const std::vector<double> squares = {1e-3, 0.75, 0x1.0p-60, last};
      const Buffer squares_d = h.upload(squares), factor = h.upload(std::vector<float>{7});
      h.ops.clip_factor(
          h.stream,
          {.squares = pointer<double>(squares_d), .count = 4, .clip = clip, .factor = pointer<float>(factor)});
      const float found = static_cast<float>(h.download_as<float>(factor, 1)[0]);
      const float wanted = static_cast<float>(clip_factor_of(squares[0] + squares[1] + squares[2] + squares[3], clip));
      EXPECT_EQ(std::isnan(found), !std::isfinite(last));
      if (std::isfinite(last)) {
        EXPECT_EQ(found, wanted);
      }
    }
  }
}

}  // namespace megatrain::testing
