// Tensor core instructions of one warp: bf16 matrices of 16 x 16 by 16 x 8 with fp32 sums, and copies that run beside
// them. Fragments are as PTX has them: of a 16 x 8 result, lane l holds columns 2 (l % 4) and 2 (l % 4) + 1 of rows l /
// 4 (elements 0 and 1) and l / 4 + 8 (elements 2 and 3).
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Four 8 x 8 matrices; lane l names row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&to)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&to)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// Left operand: rows [row, row + 16) and columns [col, col + 16) of a tile (., stride).
__device__ inline void load_left(uint32_t (&to)[4], const Bf16* tile, int stride, int row, int col) {
  const int lane = threadIdx.x % 32;
  load_matrices(to, tile + (row + lane % 16) * stride + col + lane / 16 * 8);
}
// The same from a tile that holds the operand transposed: (col, row).
__device__ inline void load_left_of_columns(uint32_t (&to)[4], const Bf16* tile, int stride, int row, int col) {
  const int lane = threadIdx.x % 32;
  load_transposed(to, tile + (col + lane / 16 * 8 + lane % 8) * stride + row + lane / 8 % 2 * 8);
}
// Right operands of two neighbouring results, to[0..1] and to[2..3], from a tile that holds them transposed: (n, k).
__device__ inline void load_right_of_rows(uint32_t (&to)[4], const Bf16* tile, int stride, int n, int k) {
  const int lane = threadIdx.x % 32;
  load_matrices(to, tile + (n + lane / 16 * 8 + lane % 8) * stride + k + lane / 8 % 2 * 8);
}
// The same from a tile (k, n).
__device__ inline void load_right(uint32_t (&to)[4], const Bf16* tile, int stride, int k, int n) {
  const int lane = threadIdx.x % 32;
  load_transposed(to, tile + (k + lane % 16) * stride + n + lane / 16 * 8);
}

__device__ inline void multiply_add(float (&sum)[4], const uint32_t (&left)[4], uint32_t right0, uint32_t right1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// Two neighbouring elements as one word.
__device__ inline uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// 16 bytes to shared memory, or zeros. `from` must be a valid address either way.
__device__ inline void copy_async(Bf16* to, const Bf16* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(to)), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kLeft of the thread's latest groups are under way.
template <int kLeft>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kLeft) : "memory");
}

}  // namespace megatrain
