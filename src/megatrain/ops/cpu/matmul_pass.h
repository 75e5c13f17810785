// The matmul's arithmetic, written once over a vector of V::kLanes floats. Every element of c is one chain of fused
// multiply-adds over k in order, so every instruction set gives the same bits.
//
// The namespace is unnamed because each file that includes this is compiled for its own instruction set, and code of
// one must not be linked into another.
#pragma once

#include <algorithm>
#include <vector>

#include "megatrain/ops/cpu/matmul.h"

namespace megatrain::cpu {
namespace {

// (k, Width) from a (k, n) or transposed (n, k) tile, columns [first, first + count), zeros beyond.
template <int64_t Width>
void pack_columns(const Tile& tile, bool transposed, int64_t k, int64_t first, int64_t count, float* out) {
  for (int64_t l = 0; l < k; ++l, out += Width) {
    if (transposed) {
      const float* from = tile.data + first * tile.stride + l;
      for (int64_t j = 0; j < count; ++j) out[j] = from[j * tile.stride];
    } else {
      std::copy_n(tile.data + l * tile.stride + first, count, out);
    }
    std::fill(out + count, out + Width, 0.0f);
  }
}

// sums (kRows, 2 kLanes) = a (k, kRows) transposed times b (k, 2 kLanes)
template <class V>
void multiply_panels(int64_t k, const float* a, const float* b, float* sums) {
  typename V::F left[V::kRows], right[V::kRows];
  for (int r = 0; r < V::kRows; ++r) left[r] = right[r] = V::set(0.0f);
  for (int64_t l = 0; l < k; ++l, a += V::kRows, b += 2 * V::kLanes) {
    const typename V::F b0 = V::load(b), b1 = V::load(b + V::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < V::kRows; ++r) {
      const typename V::F factor = V::set(a[r]);
      left[r] = V::fma(factor, b0, left[r]);
      right[r] = V::fma(factor, b1, right[r]);
    }
  }
  for (int r = 0; r < V::kRows; ++r) {
    V::store(sums + r * 2 * V::kLanes, left[r]);
    V::store(sums + r * 2 * V::kLanes + V::kLanes, right[r]);
  }
}

template <class V>
void matmul_pass(const Matmul& p) {
  constexpr int64_t kRows = V::kRows, kCols = 2 * V::kLanes;
  thread_local std::vector<float> a_panels, b_panel;
  const int64_t panels = (p.m + kRows - 1) / kRows;
  float* a = grown(a_panels, panels * kRows * p.k);
  float* b = grown(b_panel, kCols * p.k);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t row = panel * kRows;
    // a's rows are the columns of its transpose
    pack_columns<kRows>(p.a, !p.transpose_a, p.k, row, std::min(kRows, p.m - row), a + row * p.k);
  }
  float sums[kRows * kCols];
  for (int64_t col = 0; col < p.n; col += kCols) {
    const int64_t cols = std::min(kCols, p.n - col);
    pack_columns<kCols>(p.b, p.transpose_b, p.k, col, cols, b);
    for (int64_t row = 0; row < p.m; row += kRows) {
      multiply_panels<V>(p.k, a + row * p.k, b, sums);
      for (int64_t r = 0; r < std::min(kRows, p.m - row); ++r) {
        float* c = p.c + (row + r) * p.c_stride + col;
        const float* sum = sums + r * kCols;
        if (p.accumulate) {
          for (int64_t j = 0; j < cols; ++j) c[j] += p.alpha * sum[j];
        } else {
          for (int64_t j = 0; j < cols; ++j) c[j] = p.alpha * sum[j];
        }
      }
    }
  }
}

}  // namespace
}  // namespace megatrain::cpu
