// The sums over rows and columns that give the gradients of the gates.
#pragma once

#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {

inline constexpr int kQuarter = kChunkRows / 4;

// Sums over rows or columns, in parts of one warp each, which are added in order.
struct GradientSums {
  float rows[4][kChunkRows];     // of dP P + dA A
  float columns[4][kChunkRows];  // the same
  float betas[4][kChunkRows];    // rows of dA times pairs
  float values[4][kChunkRows];   // rows of X V
  float read[8][kChunkRows];     // rows of Q times dO S^T
  float written[8][kChunkRows];  // rows of K times D dS^T
  float back[8][kChunkRows];     // rows of K times Y
  float carried[32];
  double slopes[kChunkRows];  // of G
  float moved[kChunkRows];    // rest (K, D dS^T)

  template <int kParts>
  __device__ static float total(const float (&parts)[kParts][kChunkRows], int row) {
    float sum = 0;
    for (int part = 0; part < kParts; ++part) sum += parts[part][row];
    return sum;
  }
};

// The sum over the four lanes that share a row of a fragment, or the eight that share a column.
__device__ inline float sum_of_row(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}
__device__ inline float sum_of_column(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 4);
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 8);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 16);
}

// By the first warps, a thread a token. All threads of the block must call.
__device__ inline void gate_gradients(const DeltaKernelArgs& args, const ChunkPlace& place, const ChunkGates& gates,
                                      int head, float carried, GradientSums& parts) {
  const int i = threadIdx.x;
  if (i < kChunkRows) {
    const float keys = gates.kept[i] * GradientSums::total(parts.back, i);
    const float moved = gates.rest[i] * GradientSums::total(parts.written, i);
    parts.moved[i] = moved;
    parts.slopes[i] = static_cast<double>(gates.kept[i] * GradientSums::total(parts.read, i)) +
                      (GradientSums::total(parts.rows, i) - GradientSums::total(parts.columns, i)) +
                      (gates.beta[i] * keys - moved);
    if (i < place.tokens) {
      *args.grad_beta.at<float>(place.row + i, head) =
          GradientSums::total(parts.values, i) + keys + GradientSums::total(parts.betas, i);
    }
  }
  __syncthreads();
  if (i >= place.tokens) return;
  double sum = gates.kept[kChunkRows - 1] * carried;  // what reaches the last token's running sum reaches all
  for (int j = 0; j < kChunkRows; ++j) sum += parts.moved[j];
  for (int j = kChunkRows - 1; j >= i; --j) sum += parts.slopes[j];
  *args.grad_g.at<float>(place.row + i, head) = static_cast<float>(sum);
}

}  // namespace megatrain
