#include "megatrain/ops/cpu/matmul.h"

#include <algorithm>
#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

// For CPUs without a vector pass: the same chain of fused multiply-adds per element, slowly.
void matmul_scalar(const Matmul& p) {
  const int64_t a_row = p.transpose_a ? 1 : p.a.stride, a_col = p.transpose_a ? p.a.stride : 1;
  const int64_t b_row = p.transpose_b ? 1 : p.b.stride, b_col = p.transpose_b ? p.b.stride : 1;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < p.k; ++l)
        sum = std::fma(p.a.data[i * a_row + l * a_col], p.b.data[l * b_row + j * b_col], sum);
      float& c = p.c[i * p.c_stride + j];
      c = p.accumulate ? c + p.alpha * sum : p.alpha * sum;
    }
  }
}

MatmulFunction matmul_for(Simd simd) {
  MatmulFunction pass = nullptr;
  switch (simd) {
    case Simd::scalar: pass = matmul_scalar; break;
    case Simd::neon: pass = matmul_neon(); break;
    case Simd::avx2: pass = matmul_avx2(); break;
    case Simd::avx512: pass = matmul_avx512(); break;
  }
  ensure(pass != nullptr && simd_runs_here(simd), "a matmul uses instructions that this CPU has");
  return pass;
}

Tile read_tile(const View& view, int64_t row, int64_t rows, int64_t padded_rows, int64_t col, int64_t cols,
               std::vector<float>& scratch) {
  const bool as_is = view.dtype == DType::f32 && padded_rows <= rows;
  if (as_is) return {element<float>(view, row, col), view.row_stride};
  float* to = grown(scratch, std::max(rows, padded_rows) * cols);
  for (int64_t r = 0; r < rows; ++r) widen(view, row + r, col, cols, to + r * cols);
  if (padded_rows > rows) std::fill(to + rows * cols, to + padded_rows * cols, 0.0f);
  return {to, cols};
}

}  // namespace megatrain::cpu
