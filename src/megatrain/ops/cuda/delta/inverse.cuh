// The triangular inverse of a chunk.
#pragma once

#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {

// Replaces A, strictly lower triangular, by the inverse of I + A. A thread of the first two warps owns a column, which
// it solves from above in fp32. All threads of the block must call.
__device__ inline void invert(const SharedTile& a) {
  float x[kChunkRows];
  const int column = threadIdx.x;
  if (column < kChunkRows) {
#pragma unroll
    for (int i = 0; i < kChunkRows; ++i) {
      float sums[4] = {};
#pragma unroll
      for (int l = 0; l < i; l += 4) {
        const float4 row = *reinterpret_cast<const float4*>(&a(i, l));  // elements from i on are zero
        sums[0] += row.x * x[l];
        if (l + 1 < i) sums[1] += row.y * x[l + 1];
        if (l + 2 < i) sums[2] += row.z * x[l + 2];
        if (l + 3 < i) sums[3] += row.w * x[l + 3];
      }
      x[i] = i == column ? 1.0f : -((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
  }
  __syncthreads();
  if (column < kChunkRows) {
#pragma unroll
    for (int i = 0; i < kChunkRows; ++i) a(i, column) = x[i];
  }
}

}  // namespace megatrain
