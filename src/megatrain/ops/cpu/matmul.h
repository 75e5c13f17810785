// One fp32 matmul on the calling thread: the tile that larger matmuls are built from.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/ops/adamw.h"
#include "megatrain/tensor/view.h"

namespace megatrain::cpu {

// fp32 rows, `stride` elements apart.
struct Tile {
  const float* data;
  int64_t stride;
};

// c = alpha * op(a) op(b), or c += when accumulate
struct Matmul {
  int64_t m, n, k;
  Tile a;  // (m, k), or (k, m) when transpose_a
  bool transpose_a = false;
  Tile b;  // (k, n), or (n, k) when transpose_b
  bool transpose_b = false;
  float* c;  // (m, n)
  int64_t c_stride;
  float alpha = 1.0f;
  bool accumulate = false;
};

using MatmulFunction = void (*)(const Matmul&);

// One pass per instruction set; null if the architecture does not have it.
MatmulFunction matmul_neon();
MatmulFunction matmul_avx2();
MatmulFunction matmul_avx512();
void matmul_scalar(const Matmul& matmul);

// The pass for an instruction set that this CPU can run (ops/adamw.h).
MatmulFunction matmul_for(Simd simd);

// Rows [row, row + rows) x columns [col, col + cols) of a view. If they are fp32 and need no padding, these are the
// elements in place; otherwise a copy in `scratch`, with zero rows up to `padded_rows`.
Tile read_tile(const View& view, int64_t row, int64_t rows, int64_t padded_rows, int64_t col, int64_t cols,
               std::vector<float>& scratch);

// Thread-local scratch: grows to the largest size requested and is never shrunk.
inline float* grown(std::vector<float>& scratch, int64_t size) {
  if (static_cast<int64_t>(scratch.size()) < size) scratch.resize(static_cast<size_t>(size));
  return scratch.data();
}

}  // namespace megatrain::cpu
