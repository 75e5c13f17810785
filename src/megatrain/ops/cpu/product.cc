#include "megatrain/ops/cpu/product.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include <cblas.h>

#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

// Sizes of a tile, and strides that read_tile let through.
int blas_int(int64_t value) { return static_cast<int>(value); }

float dot(const float* a, int64_t a_step, const float* b, int64_t count) {
  float lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) lanes[lane] += a[(i + lane) * a_step] * b[i + lane];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  for (; i < count; ++i) sum += a[i * a_step] * b[i];
  return sum;
}

}  // namespace

void openblas_product(const Product& p) {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
  cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans,
              blas_int(p.m), blas_int(p.n), blas_int(p.k), p.alpha, p.a.data, blas_int(p.a.stride), p.b.data,
              blas_int(p.b.stride), p.accumulate ? 1.0f : 0.0f, p.c, blas_int(p.c_stride));
}

void reference_product(const Product& p) {
  const int64_t a_row = p.transpose_a ? 1 : p.a.stride;
  const int64_t a_col = p.transpose_a ? p.a.stride : 1;
  for (int64_t i = 0; i < p.m; ++i) {
    const float* a = p.a.data + i * a_row;
    float* c = p.c + i * p.c_stride;
    if (!p.accumulate) std::fill(c, c + p.n, 0.0f);
    if (p.transpose_b) {
      for (int64_t j = 0; j < p.n; ++j) c[j] += p.alpha * dot(a, a_col, p.b.data + j * p.b.stride, p.k);
    } else {
      for (int64_t l = 0; l < p.k; ++l) {
        const float factor = p.alpha * a[l * a_col];
        const float* b = p.b.data + l * p.b.stride;
        for (int64_t j = 0; j < p.n; ++j) c[j] += factor * b[j];
      }
    }
  }
}

Tile read_tile(const View& view, int64_t row, int64_t rows, int64_t padded_rows, int64_t col, int64_t cols,
               std::vector<float>& scratch) {
  const bool blas_stride = view.row_stride <= std::numeric_limits<int>::max();
  const bool as_is = view.dtype == DType::f32 && padded_rows <= rows && blas_stride;
  if (as_is) return {element<float>(view, row, col), view.row_stride};
  float* to = grown(scratch, std::max(rows, padded_rows) * cols);
  for (int64_t r = 0; r < rows; ++r) widen(view, row + r, col, cols, to + r * cols);
  if (padded_rows > rows) std::fill(to + rows * cols, to + padded_rows * cols, 0.0f);
  return {to, cols};
}

}  // namespace megatrain::cpu
