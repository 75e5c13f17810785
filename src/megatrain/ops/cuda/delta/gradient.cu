// The gradients of a chunk of the delta rule, once those of D and of the states are known (ops/cpu/delta_chunk.h has
// the formulas). A block is a chunk of one value head. Its warps own tiles of the (64, key_dim) matrices, which they
// sum over slices of the values in registers.
#include "megatrain/ops/cuda/delta/gradient_sums.cuh"
#include "megatrain/ops/cuda/delta/narrow_kernels.h"
#include "megatrain/ops/cuda/delta/segment_kernels.h"
#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kSliceStride = kSlice + 4;
constexpr int kInverseStride = kChunkRows + 8;  // M is read along its columns, as is `moved` (tf32.cuh)

// Shared memory in three phases, each in the place of the one before; M is there in the first two.
struct GradientTiles {
  SharedTile m, state, grad_state, grad_out, grad_d, d, x;  // slices of the values
  SharedTile moved;                                         // dD S^T
  SharedTile q, k, scores, pairs;                           // dP E, B

  __device__ GradientTiles(float* memory, int keys) {
    SharedMemory first(memory), third(memory);
    m = first.tile(kChunkRows, kInverseStride);
    SharedMemory second = first;
    state = first.tile(keys, kSliceStride);
    grad_state = first.tile(keys, kSliceStride);
    for (SharedTile* tile : {&grad_out, &grad_d, &d, &x}) *tile = first.tile(kChunkRows, kSliceStride);
    moved = second.tile(kChunkRows, keys + 8);
    q = third.tile(kChunkRows, keys + 4);
    k = third.tile(kChunkRows, keys + 4);
    scores = third.tile(kChunkRows, kPairStride);
    pairs = third.tile(kChunkRows, kPairStride);
  }
};

int64_t gradient_bytes(const DeltaKernelArgs& args) {
  const int64_t keys = args.keys(), row = keys + 4;
  const int64_t first = kChunkRows * kInverseStride + kSliceStride * (2 * keys + 4 * kChunkRows);
  const int64_t third = 2 * kChunkRows * (row + kPairStride);
  return int64_t{4} * (first > third ? first : third);
}

// parts[row] = the sum of a warp's columns of tile * sums, for its rows
template <int R, int C>
__device__ void dot_rows(WarpSums<R, C>& sums, const SharedTile& tile, int row0, int column0, float* parts) {
  const int lane = threadIdx.x % 32;
  float dots[R][2] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        dots[r][i / 2] +=
            sums.v[r][c][i] * tile(row0 + 16 * r + lane / 4 + i / 2 * 8, column0 + 8 * c + lane % 4 * 2 + i % 2);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float dot = sum_of_row(dots[r][half]);
      if (lane % 4 == 0) parts[row0 + 16 * r + lane / 4 + half * 8] = dot;
    }
  }
}

// What a warp sums over the slices of the values. It owns rows [key_row, + 32) and columns [key_column, + 8 C) of the
// (64, key_dim) matrices if these exist, and a (16, 16) tile of the (64, 64) ones.
template <int C>
struct ValueSums {
  WarpSums<2, C> read;     // dO S^T
  WarpSums<2, C> written;  // D dS^T
  WarpSums<2, C> moved;    // dD S^T, then Y
  WarpSums<1, 2> grad_p;   // dO D^T
  WarpSums<1, 2> grad_a;   // X D^T
  float value_dots[2] = {};
  float carried = 0;  // the thread's part of <S, dS>
  int key_row, key_column, pair_row, pair_column;
  bool has_keys;

  __device__ explicit ValueSums(int keys) {
    const int warp = threadIdx.x / 32;
    key_row = warp % 2 * 32;
    key_column = warp / 2 * (8 * C);
    pair_row = warp % 4 * kQuarter;
    pair_column = warp / 4 * kQuarter;
    has_keys = key_column < keys;
  }
};

template <class T>
__device__ void load_slice(const DeltaKernelArgs& args, const GradientTiles& tiles, const ChunkPlace& place, int chunk,
                           int head, int column) {
  const int keys = args.keys();
  load_matrix(tiles.state, args.state_of(args.states, chunk, head), args.key_dim, keys, args.value_dim, column, kSlice);
  load_matrix(tiles.grad_state, args.state_of(args.grad_states, chunk, head), args.key_dim, keys, args.value_dim,
              column, kSlice);
  load_matrix(tiles.d, args.values_of(args.d, chunk, head), kChunkRows, kChunkRows, args.value_dim, column, kSlice);
  load_matrix(tiles.grad_d, args.values_of(args.grad_d, chunk, head), kChunkRows, kChunkRows, args.value_dim, column,
              kSlice);
  load_values<T>(tiles.grad_out, args, args.grad_out, place, head, column, kSlice);
}

// A slice of X = M^T dD goes to shared memory, and beta X to the gradient of v.
template <class T, int C>
__device__ void solve_values(const DeltaKernelArgs& args, const GradientTiles& tiles, const ChunkPlace& place,
                             const ChunkGates& gates, int head, int column, ValueSums<C>& sums) {
  const int row0 = sums.pair_row, column0 = threadIdx.x / 128 * 8;
  WarpSums<1, 1> x;
  warp_matmul<kExactOperands<T>>(
      x, kChunkRows, [&](int i, int l) { return tiles.m(l, row0 + i); },
      [&](int l, int j) { return tiles.grad_d(l, column0 + j); });
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int lane = threadIdx.x % 32, row = row0 + lane / 4 + i / 2 * 8, at = column0 + lane % 4 * 2 + i % 2;
    const float value = x.v[0][0][i];
    tiles.x(row, at) = value;
    if (row >= place.tokens || column + at >= args.value_dim) continue;
    const int64_t of_head = static_cast<int64_t>(head) * args.value_dim + column + at;
    sums.value_dots[i / 2] += value * widen(*args.v.at<const T>(place.row + row, of_head));
    *args.grad_v.at<T>(place.row + row, of_head) = narrow<T>(gates.beta[row] * value);
  }
}

template <class T, int C>
__device__ void sum_slices(const DeltaKernelArgs& args, const GradientTiles& tiles, const ChunkPlace& place,
                           const ChunkGates& gates, int chunk, int head, ValueSums<C>& sums) {
  constexpr bool kExact = kExactOperands<T>;
  const int key_row = sums.key_row, key_column = sums.key_column, row = sums.pair_row, other = sums.pair_column;
  for (int column = 0; column < args.value_dim; column += kSlice) {
    __syncthreads();
    load_slice<T>(args, tiles, place, chunk, head, column);
    await_tiles();
    solve_values<T>(args, tiles, place, gates, head, column, sums);
    if (sums.has_keys) {
      const auto by_state = [&](int l, int j) { return tiles.state(key_column + j, l); };
      warp_matmul<kExact>(
          sums.read, kSlice, [&](int i, int l) { return tiles.grad_out(key_row + i, l); }, by_state);
      warp_matmul<kExact>(
          sums.moved, kSlice, [&](int i, int l) { return tiles.grad_d(key_row + i, l); }, by_state);
      warp_matmul<kExact>(
          sums.written, kSlice, [&](int i, int l) { return tiles.d(key_row + i, l); },
          [&](int l, int j) { return tiles.grad_state(key_column + j, l); });
    }
    const auto by_d = [&](int l, int j) { return tiles.d(other + j, l); };
    warp_matmul<kExact>(
        sums.grad_p, kSlice, [&](int i, int l) { return tiles.grad_out(row + i, l); }, by_d);
    for (int i = threadIdx.x; i < args.keys() * kSlice; i += kThreads)
      sums.carried += tiles.state(i / kSlice, i % kSlice) * tiles.grad_state(i / kSlice, i % kSlice);
    __syncthreads();
    warp_matmul<kExact>(
        sums.grad_a, kSlice, [&](int i, int l) { return tiles.x(row + i, l); }, by_d);
  }
}

// Y = -M^T (dD S^T), in the place of what it is made of.
template <bool kExact, int C>
__device__ void solve_keys(const GradientTiles& tiles, ValueSums<C>& sums) {
  __syncthreads();
  if (sums.has_keys)
    sums.moved.each([&](int i, int j, float value) { tiles.moved(sums.key_row + i, sums.key_column + j) = value; });
  __syncthreads();
  sums.moved = WarpSums<2, C>();
  if (!sums.has_keys) return;
  warp_matmul<kExact>(
      sums.moved, kChunkRows, [&](int i, int l) { return -tiles.m(l, sums.key_row + i); },
      [&](int l, int j) { return tiles.moved(l, sums.key_column + j); });
}

// The (64, 64) matrices that the gradients of q and k need, and the sums that those of the gates need.
template <bool kExact, int C>
__device__ void pair_gradients(const GradientTiles& tiles, const ChunkGates& gates, int keys, ValueSums<C>& sums,
                               GradientSums& parts) {
  const int row0 = sums.pair_row, column0 = sums.pair_column, lane = threadIdx.x % 32;
  WarpSums<1, 2> by_query, by_key;
  const auto right = [&](int l, int j) { return tiles.k(column0 + j, l); };
  warp_matmul<kExact>(
      by_query, keys, [&](int i, int l) { return tiles.q(row0 + i, l); }, right);
  warp_matmul<kExact>(
      by_key, keys, [&](int i, int l) { return tiles.k(row0 + i, l); }, right);
  float rows[2] = {}, betas[2] = {}, columns[2][2] = {};
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row0 + lane / 4 + e / 2 * 8, j = column0 + 8 * c + lane % 4 * 2 + e % 2;
      const float decay = j <= i ? gates.decay(i, j) : 0.0f;
      const float grad_p = j <= i ? sums.grad_p.v[0][c][e] : 0.0f, grad_a = j < i ? -sums.grad_a.v[0][c][e] : 0.0f;
      const float pairs = decay * by_key.v[0][c][e], p = decay * by_query.v[0][c][e];
      const float slope = j < i ? grad_p * p + grad_a * (gates.beta[i] * pairs) : 0.0f;
      rows[e / 2] += slope;
      columns[c][e % 2] += slope;
      betas[e / 2] += grad_a * pairs;
      tiles.scores(i, j) = grad_p * decay;
      tiles.pairs(i, j) = gates.beta[i] * grad_a * decay;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float row = sum_of_row(rows[half]), beta = sum_of_row(betas[half]), value = sum_of_row(sums.value_dots[half]);
    if (lane % 4 == 0) {
      const int i = row0 + lane / 4 + half * 8;
      parts.rows[column0 / kQuarter][i] = row;
      parts.betas[column0 / kQuarter][i] = beta;
      parts.values[column0 / kQuarter][i] = value;
    }
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float column = sum_of_column(columns[c][e]);
      if (lane < 4) parts.columns[row0 / kQuarter][column0 + 8 * c + lane * 2 + e] = column;
    }
  }
}

// By value head, of the normalised q and k.
template <bool kExact, int C>
__device__ void key_gradients(const DeltaKernelArgs& args, const GradientTiles& tiles, const ChunkGates& gates,
                              int chunk, int head, ValueSums<C>& sums) {
  if (!sums.has_keys) return;
  const int row0 = sums.key_row, column0 = sums.key_column, lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row0 + 16 * r + lane / 4 + i / 2 * 8;
        const float kept = gates.kept[row];
        sums.read.v[r][c][i] *= kept;
        sums.written.v[r][c][i] =
            gates.rest[row] * sums.written.v[r][c][i] + gates.beta[row] * kept * sums.moved.v[r][c][i];
      }
    }
  }
  const auto by_k = [&](int l, int j) { return tiles.k(l, column0 + j); };
  warp_matmul<kExact>(
      sums.read, kChunkRows, [&](int i, int l) { return tiles.scores(row0 + i, l); }, by_k);
  warp_matmul<kExact>(
      sums.written, kChunkRows, [&](int i, int l) { return tiles.scores(l, row0 + i); },
      [&](int l, int j) { return tiles.q(l, column0 + j); });
  warp_matmul<kExact>(
      sums.written, kChunkRows, [&](int i, int l) { return tiles.pairs(row0 + i, l) + tiles.pairs(l, row0 + i); },
      by_k);
  float* const grad_q = args.keys_of(args.w, chunk, head);
  float* const grad_k = args.keys_of(args.grad_keys, chunk, head);
  const auto write = [&](float* to) {
    return [&, to](int i, int j, float value) {
      if (column0 + j < args.key_dim) to[(row0 + i) * args.key_dim + column0 + j] = value;
    };
  };
  sums.read.each(write(grad_q));
  sums.written.each(write(grad_k));
}

// grid (chunks * heads)
template <class T, int C>
__global__ void __launch_bounds__(kThreads) delta_gradient_kernel(const __grid_constant__ DeltaKernelArgs args) {
  constexpr bool kExact = kExactOperands<T>;
  static_assert(kWarps == 16, "tiles are owned by sixteen warps");
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  __shared__ GradientSums parts;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads, keys = args.keys();
  const ChunkPlace& place = args.places[chunk];
  const GradientTiles tiles(memory, keys);
  ValueSums<C> sums(keys);
  gates.load(args, place, head);
  load_matrix(tiles.m, args.inverse_of(chunk, head), kChunkRows, kChunkRows, kChunkRows, 0, kChunkRows);
  sum_slices<T>(args, tiles, place, gates, chunk, head, sums);
  solve_keys<kExact>(tiles, sums);
  const float carried = block_sum(sums.carried, parts.carried);  // and a barrier before the tiles are replaced
  load_keys<T>(tiles.q, args, args.q, place, head, args.key_scale());
  load_keys<T>(tiles.k, args, args.k, place, head, 1.0f);
  __syncthreads();
  if (sums.has_keys) {
    const int part = sums.key_column / (8 * C);
    dot_rows(sums.read, tiles.q, sums.key_row, sums.key_column, parts.read[part]);
    dot_rows(sums.written, tiles.k, sums.key_row, sums.key_column, parts.written[part]);
    dot_rows(sums.moved, tiles.k, sums.key_row, sums.key_column, parts.back[part]);
  } else if (threadIdx.x % 32 == 0) {
    const int part = sums.key_column / (8 * C);
    for (int i = sums.key_row; i < sums.key_row + 32; ++i)
      parts.read[part][i] = parts.written[part][i] = parts.back[part][i] = 0;
  }
  pair_gradients<kExact>(tiles, gates, keys, sums, parts);
  __syncthreads();
  key_gradients<kExact>(args, tiles, gates, chunk, head, sums);
  gate_gradients(args, place, gates, head, carried, parts);
}

// From the gradient of scale * x / |x| to that of x; a warp is a row.
template <class T>
__device__ void narrow_key_gradient(const DeltaKernelArgs& args, const DeltaRows& x, const DeltaRows& grad_x,
                                    int64_t token, int key_head, const float* grads, float scale) {
  constexpr int kItems = static_cast<int>(kMostDeltaDim) / 32;
  const int lane = threadIdx.x % 32;
  const int64_t column = static_cast<int64_t>(key_head) * args.key_dim, next = kChunkRows * args.key_dim;
  float value[kItems], grad[kItems], squares = 0, dot = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int at = lane + 32 * i;
    value[i] = grad[i] = 0;
    if (at < args.key_dim) {
      value[i] = widen(*x.at<const T>(token, column + at));
      for (int h = 0; h < args.group; ++h) grad[i] += grads[h * next + at];
    }
    squares += value[i] * value[i];
    dot += value[i] * grad[i];
  }
  const float inverse = 1.0f / sqrtf(warp_sum(squares) + kDeltaNormEpsilon);
  const float along = inverse * inverse * warp_sum(dot);
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int at = lane + 32 * i;
    if (at < args.key_dim)
      *grad_x.at<T>(token, column + at) = narrow<T>(scale * inverse * (grad[i] - value[i] * along));
  }
}

// grid (chunks, key heads)
template <class T>
__global__ void delta_key_gradient_kernel(const __grid_constant__ DeltaKernelArgs args) {
  const int chunk = blockIdx.x, key_head = blockIdx.y;
  const ChunkPlace& place = args.places[chunk];
  const float* const grad_q = args.keys_of(args.w, chunk, key_head * args.group);
  const float* const grad_k = args.keys_of(args.grad_keys, chunk, key_head * args.group);
  for (int row = threadIdx.x / 32; row < place.tokens; row += blockDim.x / 32) {
    const int64_t at = static_cast<int64_t>(row) * args.key_dim;
    narrow_key_gradient<T>(args, args.q, args.grad_q, place.row + row, key_head, grad_q + at, args.key_scale());
    narrow_key_gradient<T>(args, args.k, args.grad_k, place.row + row, key_head, grad_k + at, 1.0f);
  }
}

}  // namespace

void launch_delta_gradient(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream) {
  if (args.narrow) return launch_narrow_gradient(args, stream);
  const int64_t bytes = gradient_bytes(args);
  visit_elements(dtype, [&](auto element) {
    using T = decltype(element);
    const auto kernel = args.keys() <= 128 ? delta_gradient_kernel<T, 2> : delta_gradient_kernel<T, 4>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
    kernel<<<grid_size(int64_t{args.chunks} * args.heads), kThreads, static_cast<size_t>(bytes), stream>>>(args);
  });
  check_launch();
}

void launch_delta_key_gradient(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream) {
  if (args.narrow) return launch_narrow_key_gradient(args, stream);
  const dim3 grid(grid_size(args.chunks), grid_size(args.heads / args.group));
  visit_elements(dtype,
                 [&](auto element) { delta_key_gradient_kernel<decltype(element)><<<grid, 256, 0, stream>>>(args); });
  check_launch();
}

}  // namespace megatrain
