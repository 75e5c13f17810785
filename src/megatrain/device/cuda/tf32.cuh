// Matmuls of warps on tensor cores. Operands are fp32 and enter as tf32, 10 bits behind the point; exact ones enter as
// two tf32 parts in three products, which keeps the accuracy of fp32. Sums are fp32.
//
// Operands are functions of (row, k) and (k, column), mostly reads of shared memory. A fragment's rows are lane / 4,
// its k are lane % 4. So a tile that is read along its rows has a stride of 4 modulo 32, and 32 lanes hit 32 banks.
#pragma once

#include <cstdint>

namespace megatrain {

// fp32 inputs enter matmuls as two tf32 parts.
template <class T>
inline constexpr bool kExactOperands = sizeof(T) == 4;

// fp32 rows in shared memory.
struct SharedTile {
  float* data;
  int stride;

  __device__ float& operator()(int row, int column) const { return data[row * stride + column]; }
};

// Hands out a block's shared memory.
class SharedMemory {
 public:
  __device__ explicit SharedMemory(float* memory) : next_(memory) {}
  __device__ SharedTile tile(int rows, int stride) {
    const SharedTile made{next_, stride};
    next_ += rows * stride;
    return made;
  }

 private:
  float* next_;
};

__device__ inline uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// sum (16, 8) += a (16, 8) b (8, 8)
__device__ inline void mma_tf32(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The tf32 parts of an operand: x is high + low, and inexact operands are high alone.
template <int kCount>
struct Tf32Parts {
  uint32_t high[kCount], low[kCount];

  template <bool kExact>
  __device__ void set(int i, float x) {
    high[i] = to_tf32(x);
    if constexpr (kExact) low[i] = to_tf32(x - __uint_as_float(high[i]));
  }
};

// Sums of a warp: rows 16 R, columns 8 C. Element (row, column) of fragment (r, c) at 2 * (row / 8 % 2) + column % 2 of
// lane 4 * (row % 8) + column / 2 % 4.
template <int R, int C>
struct WarpSums {
  float v[R][C][4] = {};

  // Calls body(row, column, value) for the lane's elements.
  template <class Body>
  __device__ void each(const Body& body) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) body(16 * r + lane / 4 + i / 2 * 8, 8 * c + lane % 4 * 2 + i % 2, v[r][c][i]);
      }
    }
  }
};

// sums += a (16 R, depth) b (depth, 8 C); depth is a multiple of 8
template <bool kExact, int R, int C, class A, class B>
__device__ __forceinline__ void warp_matmul(WarpSums<R, C>& sums, int depth, const A& a, const B& b) {
  const int row = threadIdx.x % 32 / 4, k = threadIdx.x % 4;
#pragma unroll 2
  for (int begin = 0; begin < depth; begin += 8) {
    Tf32Parts<4> left[R];
    Tf32Parts<2> right[C];
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) left[r].template set<kExact>(i, a(16 * r + row + i % 2 * 8, begin + k + i / 2 * 4));
    }
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < 2; ++i) right[c].template set<kExact>(i, b(begin + k + i * 4, 8 * c + row));
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if constexpr (kExact) {
          float part[4] = {};  // tensor cores truncate sums; these are few, and rounded when they are added
          mma_tf32(part, left[r].low, right[c].high);
          mma_tf32(part, left[r].high, right[c].low);
          mma_tf32(part, left[r].high, right[c].high);
#pragma unroll
          for (int i = 0; i < 4; ++i) sums.v[r][c][i] += part[i];
        } else {
          mma_tf32(sums.v[r][c], left[r].high, right[c].high);
        }
      }
    }
  }
}

// out(row, column, value) for every element of a (rows, depth) b (depth, columns). The block's warps take turns with
// tiles of (16 R, 8 C), of which rows and columns are multiples. Each element has one thread.
template <bool kExact, int R, int C, class A, class B, class Out>
__device__ __forceinline__ void block_matmul(int rows, int columns, int depth, const A& a, const B& b, const Out& out) {
  const int down = rows / (16 * R), tiles = down * (columns / (8 * C));
  for (int tile = threadIdx.x / 32; tile < tiles; tile += blockDim.x / 32) {
    const int row0 = tile % down * (16 * R), column0 = tile / down * (8 * C);
    WarpSums<R, C> sums;
    warp_matmul<kExact>(
        sums, depth, [&](int row, int k) { return a(row0 + row, k); },
        [&](int k, int column) { return b(k, column0 + column); });
    sums.each([&](int row, int column, float value) { out(row0 + row, column0 + column, value); });
  }
}

}  // namespace megatrain
