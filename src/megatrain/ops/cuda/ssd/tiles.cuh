// What the kernels of Mamba 2's recurrence share: a segment's tensors and scratch, and tiles in shared memory. States
// are walked over by kSsdPart rows and kSsdSlice columns, so that shared memory does not grow with them. Rows behind a
// chunk's tokens and columns behind a head or a state are zero in a tile, so sizes that do not fill it need no other
// care.
#pragma once

#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/device/cuda/tf32.cuh"
#include "megatrain/ops/ssd_segments.h"

namespace megatrain {

inline constexpr int kSsdRows = static_cast<int>(kSsdChunk);
inline constexpr int kSsdPart = 64;   // rows of a state
inline constexpr int kSsdSlice = 32;  // columns of a head
inline constexpr int kSsdThreads = 256;

// Strides of tiles that are read along their rows, or along their columns (tf32.cuh).
inline constexpr int kPartStride = kSsdPart + 4, kPartColumnStride = kSsdPart + 8;
inline constexpr int kSliceStride = kSsdSlice + 4, kSliceColumnStride = kSsdSlice + 8;
inline constexpr int kSsdPairStride = kSsdRows + 4;

struct SsdRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(data) + row * stride + column;
  }
};
inline SsdRows ssd_rows(const View& view) { return {view.data, view.row_stride}; }

// The arguments of a segment's kernels. Scratch is by chunk of the segment, then by head.
struct SsdKernelArgs {
  ChunkPlace places[kMostSegmentChunks];
  int chunks;
  int heads;
  int group;  // heads of a group
  int head_dim, state_dim;
  SsdRows x, b, c, step, g, out, grad_out, grad_x, grad_b, grad_c, grad_step, grad_g;
  const void* skip;  // (heads)
  bool skip_is_bf16;
  float* kept;          // (1) what the chunk keeps of a state
  float* states;        // (N, P) before the chunk
  float* grad_states;   // (N, P) of the state behind the chunk
  float* grad_pairs;    // (64, 64)
  const float* before;  // (heads, N, P) the state, or its gradient, at the segment's edge; or nullptr
  float* after;         // the same at the other edge

  __device__ int64_t place(int chunk, int head) const { return static_cast<int64_t>(chunk) * heads + head; }
  __device__ int64_t state_size() const { return static_cast<int64_t>(state_dim) * head_dim; }
  __device__ float* state_of(float* scratch, int chunk, int head) const {
    return scratch + place(chunk, head) * state_size();
  }
  __device__ float* pairs_of(int chunk, int head) const {
    return grad_pairs + place(chunk, head) * (kSsdRows * kSsdRows);
  }
  __device__ float skip_of(int head) const {
    return skip_is_bf16 ? widen(static_cast<const Bf16*>(skip)[head]) : static_cast<const float*>(skip)[head];
  }
  __device__ int64_t head_column(int head) const { return static_cast<int64_t>(head) * head_dim; }
  __device__ int64_t group_column(int head) const { return static_cast<int64_t>(head / group) * state_dim; }
};

// Columns [column, column + columns) of a chunk's rows; zero from `limit` on.
template <class T>
__device__ void load_token_rows(const SharedTile& tile, const SsdRows& from, const ChunkPlace& place, int64_t column,
                                int limit, int columns) {
  for (int i = threadIdx.x; i < kSsdRows * columns; i += kSsdThreads) {
    const int row = i / columns, at = i % columns;
    tile(row, at) = row < place.tokens && at < limit ? widen(*from.at<const T>(place.row + row, column + at)) : 0.0f;
  }
}

// kSsdPart rows from `row`, kSsdSlice columns from `column` of a state; zero behind it.
__device__ inline void load_state(const SharedTile& tile, const float* state, int rows, int columns, int row,
                                  int column) {
  for (int i = threadIdx.x; i < kSsdPart * kSsdSlice; i += kSsdThreads) {
    const int r = row + i / kSsdSlice, c = column + i % kSsdSlice;
    tile(i / kSsdSlice, i % kSsdSlice) = r < rows && c < columns ? state[static_cast<int64_t>(r) * columns + c] : 0.0f;
  }
}

// The steps and decays of a chunk. Tokens behind it neither decay nor write.
struct ChunkSteps {
  double sums[kSsdRows];  // G: the running sum of g
  float kept[kSsdRows];   // exp(G)
  float rest[kSsdRows];   // exp(G_last - G)
  float step[kSsdRows];

  // By the block's first warp; others see the result after the next barrier.
  __device__ void load(const SsdKernelArgs& args, const ChunkPlace& place, int head) {
    if (threadIdx.x >= 32) return;
    const int lane = threadIdx.x;
    double g[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 2 * lane + i;
      const bool exists = row < place.tokens;
      g[i] = exists ? static_cast<double>(*args.g.at<const float>(place.row + row, head)) : 0.0;
      step[row] = exists ? *args.step.at<const float>(place.row + row, head) : 0.0f;
    }
    double sum = g[0] + g[1];
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const double other = __shfl_up_sync(0xFFFFFFFFu, sum, offset);
      if (lane >= offset) sum += other;
    }
    const double before = __shfl_up_sync(0xFFFFFFFFu, sum, 1), last = __shfl_sync(0xFFFFFFFFu, sum, 31);
    double running = (lane == 0 ? 0.0 : before) + g[0];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i == 1) running = sum;
      sums[2 * lane + i] = running;
      kept[2 * lane + i] = expf(static_cast<float>(running));
      rest[2 * lane + i] = expf(static_cast<float>(last - running));
    }
  }
  // exp(G_i - G_j), for j <= i
  __device__ float decay(int i, int j) const { return expf(static_cast<float>(sums[i] - sums[j])); }
};

// A warp's tile of a (64, 64) or a (64, 32) result: 16 rows, and 32 or 16 columns.
struct WarpPlace {
  int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16, half = static_cast<int>(threadIdx.x) / 128;
};

// pairs = E_ij (c_i . b_j) for j <= i, else 0. `c` and `b` are tiles (64, kSsdPart) of stride kPartStride.
template <class T>
__device__ void score_pairs(const SsdKernelArgs& args, const ChunkPlace& place, int head, const ChunkSteps& steps,
                            const SharedTile& c, const SharedTile& b, const SharedTile& pairs) {
  const WarpPlace at;
  WarpSums<1, 4> sums;
  for (int part = 0; part < args.state_dim; part += kSsdPart) {
    __syncthreads();
    load_token_rows<T>(c, args.c, place, args.group_column(head) + part, args.state_dim - part, kSsdPart);
    load_token_rows<T>(b, args.b, place, args.group_column(head) + part, args.state_dim - part, kSsdPart);
    __syncthreads();
    warp_matmul<kExactOperands<T>>(
        sums, kSsdPart, [&](int i, int l) { return c(at.row + i, l); },
        [&](int l, int j) { return b(at.half * 32 + j, l); });
  }
  sums.each([&](int i, int j, float dot) {
    const int row = at.row + i, column = at.half * 32 + j;
    pairs(row, column) = column <= row ? steps.decay(row, column) * dot : 0.0f;
  });
}

// sums += rows state, for a slice of the head's columns: rows (64, N) of c or b, state (N, P)
template <class T>
__device__ void rows_by_state(WarpSums<1, 2>& sums, const SsdKernelArgs& args, const SsdRows& rows,
                              const ChunkPlace& place, int head, const float* state, int column,
                              const SharedTile& row_part, const SharedTile& state_part) {
  const WarpPlace at;
  for (int part = 0; part < args.state_dim; part += kSsdPart) {
    __syncthreads();
    load_token_rows<T>(row_part, rows, place, args.group_column(head) + part, args.state_dim - part, kSsdPart);
    load_state(state_part, state, args.state_dim, args.head_dim, part, column);
    __syncthreads();
    warp_matmul<kExactOperands<T>>(
        sums, kSsdPart, [&](int i, int l) { return row_part(at.row + i, l); },
        [&](int l, int j) { return state_part(l, at.half * 16 + j); });
  }
}

template <class Kernel, class... Args>
void launch_tiles(Kernel kernel, dim3 grid, int64_t floats, cudaStream_t stream, const Args&... args) {
  const int bytes = static_cast<int>(floats * static_cast<int64_t>(sizeof(float)));
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<grid, kSsdThreads, static_cast<size_t>(bytes), stream>>>(args...);
  check_launch();
}

}  // namespace megatrain
