// What the kernels of the delta rule share: a segment's tensors and scratch, and tiles of a chunk in shared memory. A
// tile has kChunkRows rows, of which those behind the chunk's tokens are zero, and whole multiples of 32 columns, of
// which those behind the head are zero. So sizes that do not fill a tile need no other care.
#pragma once

#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/device/cuda/tf32.cuh"
#include "megatrain/ops/delta_segments.h"

namespace megatrain {

inline constexpr int kChunkRows = static_cast<int>(kDeltaChunk);
inline constexpr int kSlice = 32;  // columns of a state that one block walks with
inline constexpr int kPairStride = kChunkRows + 4;

struct DeltaRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(data) + row * stride + column;
  }
};
inline DeltaRows delta_rows(const View& view) { return {view.data, view.row_stride}; }

// The arguments of a segment's kernels. Scratch is by chunk of the segment, then by value head.
struct DeltaKernelArgs {
  ChunkPlace places[kMostSegmentChunks];
  int chunks;
  int heads;  // value heads
  int group;  // value heads per key head
  int key_dim, value_dim;
  bool packed;  // rows of q, k, v and grad_out, and their heads, begin at multiples of 16 bytes
  bool narrow;  // the kernels of narrow_kernels.h compute it
  DeltaRows q, k, v, g, beta, out, grad_out, grad_q, grad_k, grad_v, grad_g, grad_beta;
  float* w;             // (64, key_dim) W; in backward then the gradient of the normalised q
  float* d;             // (64, value_dim) U, then D
  float* states;        // (key_dim, value_dim) before the chunk
  float* inverse;       // (64, 64) M
  float* grad_d;        // (64, value_dim)
  float* grad_states;   // (key_dim, value_dim) of the state behind the chunk
  float* grad_keys;     // (64, key_dim) of the normalised k
  const float* before;  // (heads, key_dim, value_dim) the state, or its gradient, at the segment's edge; or nullptr
  float* after;         // the same at the other edge

  // Padded to whole tiles.
  __host__ __device__ int keys() const { return (key_dim + 31) / 32 * 32; }
  __host__ __device__ int values() const { return (value_dim + 31) / 32 * 32; }

  __device__ int64_t place(int chunk, int head) const { return static_cast<int64_t>(chunk) * heads + head; }
  __device__ float* keys_of(float* scratch, int chunk, int head) const {
    return scratch + place(chunk, head) * (kChunkRows * key_dim);
  }
  __device__ float* values_of(float* scratch, int chunk, int head) const {
    return scratch + place(chunk, head) * (kChunkRows * value_dim);
  }
  __device__ float* state_of(float* scratch, int chunk, int head) const {
    return scratch + place(chunk, head) * (static_cast<int64_t>(key_dim) * value_dim);
  }
  __device__ float* inverse_of(int chunk, int head) const {
    return inverse + place(chunk, head) * (kChunkRows * kChunkRows);
  }
  __device__ float key_scale() const { return 1.0f / sqrtf(static_cast<float>(key_dim)); }
};

// Asynchronous copies of 16 bytes to shared memory; zeros if there is no source.
__device__ inline void copy_pack(float* to, const float* from, bool exists) {
  const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
// The block's tiles are complete: all copies have arrived, and all threads have stored what they loaded.
__device__ inline void await_tiles() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
}

// Rows of one head, normalised to `scale`. Eight lanes share a row; each scales what it has stored.
template <class T, int kVec>
__device__ void load_unit_rows(const SharedTile& tile, const DeltaRows& from, const ChunkPlace& place, int64_t column,
                               int size, int padded, float scale) {
  const int first = threadIdx.x % 8 * kVec;
#pragma unroll 1
  for (int row = threadIdx.x / 8; row < kChunkRows; row += blockDim.x / 8) {
    const T* source = from.at<const T>(place.row + row, column);
    const bool exists = row < place.tokens;
    float squares = 0;
#pragma unroll 2
    for (int at = first; at < padded; at += 8 * kVec) {
      float x[kVec] = {};
      if (exists && at < size) load<T, kVec>(source + at, x);
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        tile(row, at + j) = x[j];
        squares += x[j] * x[j];
      }
    }
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xFFFFFFFFu, squares, offset);
    const float factor = scale / sqrtf(squares + kDeltaNormEpsilon);
    for (int at = first; at < padded; at += 8 * kVec) {
#pragma unroll
      for (int j = 0; j < kVec; ++j) tile(row, at + j) *= factor;
    }
  }
}

// Columns [column, column + padded) of rows of tokens; zero from `limit` on. A thread has kAtOnce loads under way.
template <class T, int kVec, int kAtOnce>
__device__ void load_token_rows(const SharedTile& tile, const DeltaRows& from, const ChunkPlace& place, int64_t column,
                                int limit, int padded) {
  const int packs = padded / kVec, threads = blockDim.x;
  for (int first = threadIdx.x; first < kChunkRows * packs; first += kAtOnce * threads) {
    float x[kAtOnce][kVec];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * threads, row = i / packs, at = i % packs * kVec;
#pragma unroll
      for (int j = 0; j < kVec; ++j) x[u][j] = 0;
      if (row < place.tokens && at < limit) load<T, kVec>(from.at<const T>(place.row + row, column + at), x[u]);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * threads, row = i / packs, at = i % packs * kVec;
      if (row >= kChunkRows) continue;
#pragma unroll
      for (int j = 0; j < kVec; ++j) tile(row, at + j) = x[u][j];
    }
  }
}

// The same by packs of 16 bytes, if the tensors allow it.
template <class T>
__device__ void load_keys(const SharedTile& tile, const DeltaKernelArgs& args, const DeltaRows& from,
                          const ChunkPlace& place, int head, float scale) {
  const int64_t column = static_cast<int64_t>(head / args.group) * args.key_dim;
  if (args.packed) {
    load_unit_rows<T, kPack<T>>(tile, from, place, column, args.key_dim, args.keys(), scale);
  } else {
    load_unit_rows<T, 1>(tile, from, place, column, args.key_dim, args.keys(), scale);
  }
}
template <class T, int kAtOnce = 1>
__device__ void load_values(const SharedTile& tile, const DeltaKernelArgs& args, const DeltaRows& from,
                            const ChunkPlace& place, int head, int column, int padded) {
  const int64_t first = static_cast<int64_t>(head) * args.value_dim + column;
  if (args.packed) {
    load_token_rows<T, kPack<T>, kAtOnce>(tile, from, place, first, args.value_dim - column, padded);
  } else {
    load_token_rows<T, 1, kAtOnce>(tile, from, place, first, args.value_dim - column, padded);
  }
}

// Columns [column, column + padded) of a (rows, size) matrix of scratch; zero behind it up to `padded_rows`. Sizes and
// columns are multiples of four. The tile is there after await_tiles().
__device__ inline void load_matrix(const SharedTile& tile, const float* from, int rows, int padded_rows, int size,
                                   int column, int padded) {
  const int packs = padded / 4;
#pragma unroll 2
  for (int i = threadIdx.x; i < padded_rows * packs; i += blockDim.x) {
    const int row = i / packs, at = i % packs * 4;
    const bool exists = row < rows && column + at < size;
    copy_pack(&tile(row, at), exists ? from + static_cast<int64_t>(row) * size + column + at : from, exists);
  }
}

__device__ inline void store_matrix(const SharedTile& tile, float* to, int rows, int size, int column, int padded) {
  const int packs = padded / 4;
#pragma unroll 2
  for (int i = threadIdx.x; i < rows * packs; i += blockDim.x) {
    const int row = i / packs, at = i % packs * 4;
    if (column + at < size)
      *reinterpret_cast<float4*>(to + static_cast<int64_t>(row) * size + column + at) =
          *reinterpret_cast<const float4*>(&tile(row, at));
  }
}

// The gates of a chunk. Tokens behind it neither decay nor write.
struct ChunkGates {
  double sums[kChunkRows];  // G: the running sum of g
  float kept[kChunkRows];   // exp(G)
  float rest[kChunkRows];   // exp(G_last - G)
  float beta[kChunkRows];

  // By the block's first warp; others see the result after the next barrier.
  __device__ void load(const DeltaKernelArgs& args, const ChunkPlace& place, int head) {
    if (threadIdx.x >= 32) return;
    const int lane = threadIdx.x;
    double g[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * lane + i;
      const bool exists = row < place.tokens;
      g[i] = exists ? static_cast<double>(*args.g.at<const float>(place.row + row, head)) : 0.0;
      beta[row] = exists ? *args.beta.at<const float>(place.row + row, head) : 0.0f;
    }
    double sum = g[0] + g[1];
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const double other = __shfl_up_sync(0xFFFFFFFFu, sum, offset);
      if (lane >= offset) sum += other;
    }
    const double before = __shfl_up_sync(0xFFFFFFFFu, sum, 1), last = __shfl_sync(0xFFFFFFFFu, sum, 31);
    double running = lane == 0 ? 0.0 : before;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      running = i == 1 ? sum : running + g[0];
      sums[2 * lane + i] = running;
      kept[2 * lane + i] = expf(static_cast<float>(running));
      rest[2 * lane + i] = expf(static_cast<float>(last - running));
    }
  }
  // exp(G_i - G_j), for j <= i
  __device__ float decay(int i, int j) const { return expf(static_cast<float>(sums[i] - sums[j])); }
};

// P = E_ij (q_i . k_j) for j <= i, else 0
template <bool kExact>
__device__ void score_pairs(const SharedTile& q, const SharedTile& k, const ChunkGates& gates, int keys,
                            const SharedTile& pairs) {
  block_matmul<kExact, 1, 2>(
      kChunkRows, kChunkRows, keys, [&](int i, int l) { return q(i, l); }, [&](int l, int j) { return k(j, l); },
      [&](int i, int j, float dot) { pairs(i, j) = j <= i ? gates.decay(i, j) * dot : 0.0f; });
}

}  // namespace megatrain
