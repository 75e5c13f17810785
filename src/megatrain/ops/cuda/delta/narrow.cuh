// The delta rule in bf16 with heads of 128, as models have them. Operands of matmuls are bf16, also in shared memory.
// Sums are fp32: in registers, and in scratch where a kernel adds to another's result. q and k enter as they are. The
// factors that normalise them, and the gates, multiply the other operand or the sum.
//
// A tile's row ends with 8 columns that nobody reads, so that eight rows of a fragment lie in different banks.
#pragma once

#include "megatrain/device/cuda/mma.cuh"
#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {

inline constexpr int kNarrowDim = 128;  // of a head, keys and values

struct NarrowTile {
  Bf16* data;
  int stride;

  __device__ Bf16* at(int row, int column) const { return data + row * stride + column; }
  // Two neighbouring elements; the column is even.
  __device__ void set_pair(int row, int column, float first, float second) const {
    *reinterpret_cast<uint32_t*>(at(row, column)) = pack_pair(first, second);
  }
  __device__ float2 pair(int row, int column) const {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(at(row, column)));
  }
};

// Hands out a block's shared memory.
class NarrowMemory {
 public:
  __device__ explicit NarrowMemory(void* memory) : next_(static_cast<Bf16*>(memory)) {}
  __device__ NarrowTile tile(int rows, int columns) {
    const NarrowTile made{next_, columns + 8};
    next_ += rows * made.stride;
    return made;
  }

 private:
  Bf16* next_;
};
constexpr int64_t narrow_bytes(int64_t rows, int64_t columns) { return 2 * rows * (columns + 8); }

// Operands of a matmul. A left one's element (i, l) is tile(row + i, l), or tile(l, row + i) of a transposed one. A
// right one's element (l, j) is tile(l, column + j), or tile(column + j, l).
struct Left {
  NarrowTile tile;
  int row;
  __device__ void load(uint32_t (&to)[4], int i, int l) const { load_left(to, tile.data, tile.stride, row + i, l); }
};
struct LeftTransposed {
  NarrowTile tile;
  int row;
  __device__ void load(uint32_t (&to)[4], int i, int l) const {
    load_left_of_columns(to, tile.data, tile.stride, row + i, l);
  }
};
struct Right {
  NarrowTile tile;
  int column;
  __device__ void load(uint32_t (&to)[4], int l, int j) const { load_right(to, tile.data, tile.stride, l, column + j); }
};
struct RightTransposed {
  NarrowTile tile;
  int column;
  __device__ void load(uint32_t (&to)[4], int l, int j) const {
    load_right_of_rows(to, tile.data, tile.stride, column + j, l);
  }
};

// sums += a (16 R, depth) b (depth, 8 C) over depth [begin, end), multiples of 16
template <int R, int C, class A, class B>
__device__ __forceinline__ void narrow_matmul(WarpSums<R, C>& sums, int begin, int end, const A& a, const B& b) {
  static_assert(C % 2 == 0, "right fragments come in pairs");
#pragma unroll 4
  for (int l = begin; l < end; l += 16) {
    uint32_t left[R][4], right[C / 2][4];
#pragma unroll
    for (int r = 0; r < R; ++r) a.load(left[r], 16 * r, l);
#pragma unroll
    for (int c = 0; c < C / 2; ++c) b.load(right[c], l, 16 * c);
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c)
        multiply_add(sums.v[r][c], left[r], right[c / 2][c % 2 * 2], right[c / 2][c % 2 * 2 + 1]);
    }
  }
}

// Calls body(row, column, first, second) for the lane's pairs of neighbouring elements, which it may change.
template <int R, int C, class Body>
__device__ __forceinline__ void each_pair(WarpSums<R, C>& sums, const Body& body) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < C; ++c)
        body(16 * r + 8 * half + lane / 4, 8 * c + lane % 4 * 2, sums.v[r][c][2 * half], sums.v[r][c][2 * half + 1]);
    }
  }
}

// Copies (rows, kColumns) under way, zeros from row `existing` on; `from` has packs of 16 bytes.
template <int kColumns>
__device__ __forceinline__ void copy_tile(const NarrowTile& tile, const Bf16* from, int64_t stride, int rows,
                                          int existing) {
  constexpr int kPacks = kColumns / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * kPacks; i += blockDim.x) {
    const int row = i / kPacks, at = i % kPacks * 8;
    const bool exists = row < existing;
    copy_async(tile.at(row, at), exists ? from + row * stride + at : from, exists);
  }
}
// The reverse.
template <int kColumns>
__device__ __forceinline__ void store_tile(const NarrowTile& tile, Bf16* to, int64_t stride, int rows) {
  constexpr int kPacks = kColumns / 8;
#pragma unroll 2
  for (int i = threadIdx.x; i < rows * kPacks; i += blockDim.x) {
    const int row = i / kPacks, at = i % kPacks * 8;
    *reinterpret_cast<uint4*>(to + row * stride + at) = *reinterpret_cast<const uint4*>(tile.at(row, at));
  }
}

// By token of a chunk; rows behind it have zeros.
struct ChunkFactors {
  float query[kChunkRows];    // normalises q, and scales it
  float key[kChunkRows];      // normalises k
  float read[kChunkRows];     // exp(G) query
  float written[kChunkRows];  // exp(G_last - G) key
  float kept;                 // exp(G_last)
};

// Where this path keeps what of a chunk: its bf16 matrices take a part of the fp32 ones' scratch. W and the factors lie
// where the gradient of q comes to be. D stands behind the state, its gradient behind the state's; what d and grad_d
// hold is fp32, U and P^T dO.
struct NarrowScratch {
  const DeltaKernelArgs& args;
  int chunk, head;

  static constexpr int kState = kNarrowDim * kNarrowDim;
  __device__ Bf16* w() const { return reinterpret_cast<Bf16*>(args.keys_of(args.w, chunk, head)); }
  __device__ ChunkFactors& factors() const { return *reinterpret_cast<ChunkFactors*>(w() + kChunkRows * kNarrowDim); }
  __device__ Bf16* state() const { return reinterpret_cast<Bf16*>(args.state_of(args.states, chunk, head)); }
  __device__ Bf16* d() const { return state() + kState; }
  __device__ float* u() const { return args.values_of(args.d, chunk, head); }
  __device__ Bf16* inverse() const { return reinterpret_cast<Bf16*>(args.inverse_of(chunk, head)); }
  __device__ Bf16* grad_state() const { return reinterpret_cast<Bf16*>(args.state_of(args.grad_states, chunk, head)); }
  __device__ Bf16* grad_d() const { return grad_state() + kState; }
  __device__ float* grad_d_of_outputs() const { return args.values_of(args.grad_d, chunk, head); }
};

__device__ inline const Bf16* narrow_keys(const DeltaKernelArgs& args, const DeltaRows& from, const ChunkPlace& place,
                                          int head) {
  return from.at<const Bf16>(place.row, static_cast<int64_t>(head / args.group) * kNarrowDim);
}
__device__ inline const Bf16* narrow_values(const DeltaRows& from, const ChunkPlace& place, int head) {
  return from.at<const Bf16>(place.row, static_cast<int64_t>(head) * kNarrowDim);
}

// exp(G_i - G_j) of a pair, for j <= i
__device__ inline float pair_decay(const ChunkGates& gates, int i, int j) { return j <= i ? gates.decay(i, j) : 0.0f; }

}  // namespace megatrain
