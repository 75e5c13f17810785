// gradient.cu in bf16 with heads of 128. A block is a chunk of one value head and copies all its tiles at once.
#include "megatrain/ops/cuda/delta/gradient_sums.cuh"
#include "megatrain/ops/cuda/delta/narrow.cuh"
#include "megatrain/ops/cuda/delta/narrow_kernels.h"

namespace megatrain {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
static_assert(kWarps == 16, "tiles are owned by sixteen warps");

struct GradientTiles {
  NarrowTile state, grad_state, grad_out, grad_d, d, q, k, m;
  NarrowTile x;                    // M^T dD, then dD S^T
  NarrowTile by_keys, by_queries;  // dP E times the factors of k by column, and of q by row
  NarrowTile both_ways;            // B + B^T times the factors of k by column

  __device__ explicit GradientTiles(void* memory) {
    NarrowMemory shared(memory);
    for (NarrowTile* tile : {&state, &grad_state}) *tile = shared.tile(kNarrowDim, kNarrowDim);
    for (NarrowTile* tile : {&grad_out, &grad_d, &d, &q, &k, &x}) *tile = shared.tile(kChunkRows, kNarrowDim);
    for (NarrowTile* tile : {&m, &by_keys, &by_queries, &both_ways}) *tile = shared.tile(kChunkRows, kChunkRows);
  }
};
constexpr int64_t kBytes =
    narrow_bytes(2 * kNarrowDim + 6 * kChunkRows, kNarrowDim) + narrow_bytes(4 * kChunkRows, kChunkRows);

// A warp owns rows [key_row, + 32) and columns [key_column, + 16) of the (64, 128) matrices of keys, and a (16, 16)
// tile of the (64, 64) ones.
struct Owned {
  int warp = threadIdx.x / 32;
  int key_row = warp % 2 * 32, key_column = warp / 2 * 16;
  int pair_row = warp % 4 * 16, pair_column = warp / 4 * 16;
};

struct OwnedSums {
  WarpSums<2, 2> read;     // dO S^T
  WarpSums<2, 2> written;  // D dS^T
  WarpSums<2, 2> moved;    // dD S^T, then Y
  WarpSums<1, 2> grad_p;   // dO D^T
  WarpSums<1, 2> grad_a;   // X D^T
};

// In three groups, in the order of their use.
__device__ void copy_tiles(const DeltaKernelArgs& args, const ChunkPlace& place, const NarrowScratch& scratch,
                           const GradientTiles& tiles) {
  const int head = scratch.head;
  copy_tile<kChunkRows>(tiles.m, scratch.inverse(), kChunkRows, kChunkRows, kChunkRows);
  copy_tile<kNarrowDim>(tiles.grad_d, scratch.grad_d(), kNarrowDim, kChunkRows, kChunkRows);
  commit_copies();
  copy_tile<kNarrowDim>(tiles.d, scratch.d(), kNarrowDim, kChunkRows, kChunkRows);
  copy_tile<kNarrowDim>(tiles.grad_out, narrow_values(args.grad_out, place, head), args.grad_out.stride, kChunkRows,
                        place.tokens);
  copy_tile<kNarrowDim>(tiles.state, scratch.state(), kNarrowDim, kNarrowDim, kNarrowDim);
  copy_tile<kNarrowDim>(tiles.grad_state, scratch.grad_state(), kNarrowDim, kNarrowDim, kNarrowDim);
  commit_copies();
  copy_tile<kNarrowDim>(tiles.q, narrow_keys(args, args.q, place, head), args.q.stride, kChunkRows, place.tokens);
  copy_tile<kNarrowDim>(tiles.k, narrow_keys(args, args.k, place, head), args.k.stride, kChunkRows, place.tokens);
  commit_copies();
}

// X = M^T dD goes to shared memory, beta X to the gradient of v, and rows of X V to the sums.
__device__ void solve_values(const DeltaKernelArgs& args, const GradientTiles& tiles, const ChunkPlace& place,
                             const ChunkGates& gates, int head, GradientSums& parts) {
  const int warp = threadIdx.x / 32, row0 = warp % 4 * 16, column0 = warp / 4 * 32;
  WarpSums<1, 4> x;
  narrow_matmul(x, row0, kChunkRows, LeftTransposed{tiles.m, row0}, Right{tiles.grad_d, column0});
  float dots[2] = {};
  each_pair(x, [&](int row, int j, float first, float second) {
    const int i = row0 + row;
    tiles.x.set_pair(i, column0 + j, first, second);
    if (i >= place.tokens) return;
    const int64_t column = static_cast<int64_t>(head) * kNarrowDim + column0 + j;
    float v[2];
    load<Bf16, 2>(args.v.at<const Bf16>(place.row + i, column), v);
    dots[row / 8] += first * v[0] + second * v[1];
    *reinterpret_cast<uint32_t*>(args.grad_v.at<Bf16>(place.row + i, column)) =
        pack_pair(gates.beta[i] * first, gates.beta[i] * second);
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float dot = sum_of_row(dots[half]);
    if (threadIdx.x % 4 == 0) parts.values[warp / 4][row0 + 8 * half + threadIdx.x % 32 / 4] = dot;
  }
}

// The thread's part of <S, dS>
__device__ float carried_part(const GradientTiles& tiles) {
  float sum = 0;
  for (int i = threadIdx.x; i < NarrowScratch::kState / 2; i += kThreads) {
    const float2 a = tiles.state.pair(i / 64, i % 64 * 2), b = tiles.grad_state.pair(i / 64, i % 64 * 2);
    sum += a.x * b.x + a.y * b.y;
  }
  return sum;
}

__device__ void sum_values(const GradientTiles& tiles, const Owned& owned, OwnedSums& sums) {
  if (owned.pair_column <= owned.pair_row) {
    const RightTransposed d{tiles.d, owned.pair_column};
    narrow_matmul(sums.grad_p, 0, kNarrowDim, Left{tiles.grad_out, owned.pair_row}, d);
    narrow_matmul(sums.grad_a, 0, kNarrowDim, Left{tiles.x, owned.pair_row}, d);
  }
  const RightTransposed state{tiles.state, owned.key_column}, grad_state{tiles.grad_state, owned.key_column};
  narrow_matmul(sums.read, 0, kNarrowDim, Left{tiles.grad_out, owned.key_row}, state);
  narrow_matmul(sums.moved, 0, kNarrowDim, Left{tiles.grad_d, owned.key_row}, state);
  narrow_matmul(sums.written, 0, kNarrowDim, Left{tiles.d, owned.key_row}, grad_state);
}

// parts[row] = the factor of the row times the sum of a warp's columns of tile * sums, for its rows
__device__ void dot_rows(WarpSums<2, 2>& sums, const NarrowTile& tile, const float* factors, const Owned& owned,
                         float* parts) {
  float dots[2][2] = {};
  each_pair(sums, [&](int i, int j, float first, float second) {
    const float2 pair = tile.pair(owned.key_row + i, owned.key_column + j);
    dots[i / 16][i / 8 % 2] += first * pair.x + second * pair.y;
  });
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float dot = sum_of_row(dots[r][half]);
      const int row = owned.key_row + 16 * r + 8 * half + threadIdx.x % 32 / 4;
      if (threadIdx.x % 4 == 0) parts[row] = factors[row] * dot;
    }
  }
}

// The (64, 64) matrices that the gradients of q and k need, and the sums that those of the gates need.
__device__ void pair_gradients(const GradientTiles& tiles, const ChunkGates& gates, const ChunkFactors& factors,
                               const Owned& owned, OwnedSums& sums, GradientSums& parts) {
  const int row0 = owned.pair_row, column0 = owned.pair_column, lane = threadIdx.x % 32;
  WarpSums<1, 2> by_query, by_key;
  if (column0 <= row0) {
    narrow_matmul(by_query, 0, kNarrowDim, Left{tiles.q, row0}, RightTransposed{tiles.k, column0});
    narrow_matmul(by_key, 0, kNarrowDim, Left{tiles.k, row0}, RightTransposed{tiles.k, column0});
  }
  float rows[2] = {}, betas[2] = {}, columns[2][2] = {};
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = row0 + lane / 4 + e / 2 * 8, j = column0 + 8 * c + lane % 4 * 2 + e % 2;
      const float decay = pair_decay(gates, i, j), key = factors.key[j];
      const float grad_p = j <= i ? sums.grad_p.v[0][c][e] : 0.0f, grad_a = j < i ? -sums.grad_a.v[0][c][e] : 0.0f;
      const float pairs = decay * factors.key[i] * key * by_key.v[0][c][e];
      const float p = decay * factors.query[i] * key * by_query.v[0][c][e];
      const float slope = j < i ? grad_p * p + grad_a * (gates.beta[i] * pairs) : 0.0f;
      rows[e / 2] += slope;
      columns[c][e % 2] += slope;
      betas[e / 2] += grad_a * pairs;
      const float score = grad_p * decay, b = gates.beta[i] * grad_a * decay;
      *tiles.by_keys.at(i, j) = narrow<Bf16>(score * key);
      *tiles.by_queries.at(i, j) = narrow<Bf16>(score * factors.query[i]);
      if (j > i) continue;  // its mirror writes it
      *tiles.both_ways.at(i, j) = narrow<Bf16>(b * key);
      *tiles.both_ways.at(j, i) = narrow<Bf16>(b * factors.key[i]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float row = sum_of_row(rows[half]), beta = sum_of_row(betas[half]);
    if (lane % 4 == 0) {
      const int i = row0 + lane / 4 + half * 8;
      parts.rows[column0 / kQuarter][i] = row;
      parts.betas[column0 / kQuarter][i] = beta;
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
__device__ void key_gradients(const DeltaKernelArgs& args, const GradientTiles& tiles, const ChunkGates& gates,
                              const Owned& owned, int chunk, int head, OwnedSums& sums) {
  const int row0 = owned.key_row, column0 = owned.key_column;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row0 + 16 * r + threadIdx.x % 32 / 4 + i / 2 * 8;
        sums.read.v[r][c][i] *= gates.kept[row];
        sums.written.v[r][c][i] =
            gates.rest[row] * sums.written.v[r][c][i] + gates.beta[row] * gates.kept[row] * sums.moved.v[r][c][i];
      }
    }
  }
  const Right q{tiles.q, column0}, k{tiles.k, column0};
  narrow_matmul(sums.read, 0, row0 + 32, Left{tiles.by_keys, row0}, k);
  narrow_matmul(sums.written, row0, kChunkRows, LeftTransposed{tiles.by_queries, row0}, q);
  narrow_matmul(sums.written, 0, kChunkRows, Left{tiles.both_ways, row0}, k);
  const auto write = [&](float* to) {
    return [to, row0, column0](int i, int j, float first, float second) {
      *reinterpret_cast<float2*>(to + (row0 + i) * kNarrowDim + column0 + j) = float2{first, second};
    };
  };
  each_pair(sums.read, write(args.keys_of(args.w, chunk, head)));
  each_pair(sums.written, write(args.keys_of(args.grad_keys, chunk, head)));
}

// Brings what a later block reads from scratch into L2, while this one computes. Its SM takes about that one next.
__device__ void prefetch_scratch(const DeltaKernelArgs& args) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned processors;
  asm("mov.u32 %0, %%nsmid;" : "=r"(processors));
  const unsigned next = blockIdx.x + processors;
  if (threadIdx.x > 0 || next >= gridDim.x) return;
  const NarrowScratch scratch{args, static_cast<int>(next) / args.heads, static_cast<int>(next) % args.heads};
  constexpr unsigned kBytesOfStateAndD = sizeof(Bf16) * (NarrowScratch::kState + kChunkRows * kNarrowDim);
  for (const Bf16* from : {scratch.state(), scratch.grad_state()})
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)),
                 "r"(kBytesOfStateAndD)
                 : "memory");
#endif
}

// grid (chunks * heads)
__global__ void __launch_bounds__(kThreads, 1) narrow_gradient_kernel(const __grid_constant__ DeltaKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  __shared__ ChunkFactors factors;
  __shared__ GradientSums parts;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads;
  const ChunkPlace& place = args.places[chunk];
  const NarrowScratch scratch{args, chunk, head};
  const GradientTiles tiles(memory);
  const Owned owned;
  copy_tiles(args, place, scratch, tiles);
  gates.load(args, place, head);
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(ChunkFactors) / sizeof(float)); i += kThreads)
    reinterpret_cast<float*>(&factors)[i] = reinterpret_cast<const float*>(&scratch.factors())[i];
  OwnedSums sums;
  wait_copies<2>();
  __syncthreads();
  solve_values(args, tiles, place, gates, head, parts);
  wait_copies<1>();
  __syncthreads();
  prefetch_scratch(args);
  sum_values(tiles, owned, sums);
  const float carried = carried_part(tiles);
  wait_copies<0>();
  __syncthreads();
  // dD S^T takes the place of X.
  each_pair(sums.moved, [&](int i, int j, float first, float second) {
    tiles.x.set_pair(owned.key_row + i, owned.key_column + j, first, second);
  });
  pair_gradients(tiles, gates, factors, owned, sums, parts);
  __syncthreads();
  sums.moved = WarpSums<2, 2>();
  narrow_matmul(sums.moved, owned.key_row, kChunkRows, LeftTransposed{tiles.m, owned.key_row},
                Right{tiles.x, owned.key_column});
  each_pair(sums.moved, [](int, int, float& first, float& second) {
    first = -first;
    second = -second;
  });
  const int part = owned.key_column / 16;
  dot_rows(sums.read, tiles.q, factors.query, owned, parts.read[part]);
  dot_rows(sums.written, tiles.k, factors.key, owned, parts.written[part]);
  dot_rows(sums.moved, tiles.k, factors.key, owned, parts.back[part]);
  key_gradients(args, tiles, gates, owned, chunk, head, sums);
  gate_gradients(args, place, gates, head, block_sum(carried, parts.carried), parts);
}

// From the gradient of scale * x / |x| to that of x, of a token; a warp is a row, and a lane has four elements.
__device__ void narrow_key_gradient(const DeltaRows& x, const DeltaRows& grad_x, int64_t token, int64_t column,
                                    const float* grads, int group, float scale) {
  const int at = threadIdx.x % 32 * 4;
  float value[4], grad[4] = {}, squares = 0, dot = 0;
  load<Bf16, 4>(x.at<const Bf16>(token, column + at), value);
  for (int h = 0; h < group; ++h) {
    float of_head[4];
    load<float, 4>(grads + h * (kChunkRows * kNarrowDim) + at, of_head);
#pragma unroll
    for (int i = 0; i < 4; ++i) grad[i] += of_head[i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    squares += value[i] * value[i];
    dot += value[i] * grad[i];
  }
  const float inverse = 1.0f / sqrtf(warp_sum(squares) + kDeltaNormEpsilon);
  const float along = inverse * inverse * warp_sum(dot);
#pragma unroll
  for (int i = 0; i < 4; ++i) grad[i] = scale * inverse * (grad[i] - value[i] * along);
  store<Bf16, 4>(grad_x.at<Bf16>(token, column + at), grad);
}

constexpr int kKeyThreads = 256;

// grid (chunks, key heads)
__global__ void __launch_bounds__(kKeyThreads, 4)
    narrow_key_gradient_kernel(const __grid_constant__ DeltaKernelArgs args) {
  const int chunk = blockIdx.x, key_head = blockIdx.y;
  const ChunkPlace& place = args.places[chunk];
  const int64_t column = static_cast<int64_t>(key_head) * kNarrowDim;
  const float* const grad_q = args.keys_of(args.w, chunk, key_head * args.group);
  const float* const grad_k = args.keys_of(args.grad_keys, chunk, key_head * args.group);
  for (int row = threadIdx.x / 32; row < place.tokens; row += kKeyThreads / 32) {
    const int64_t at = static_cast<int64_t>(row) * kNarrowDim;
    narrow_key_gradient(args.q, args.grad_q, place.row + row, column, grad_q + at, args.group, args.key_scale());
    narrow_key_gradient(args.k, args.grad_k, place.row + row, column, grad_k + at, args.group, 1.0f);
  }
}

}  // namespace

void launch_narrow_key_gradient(const DeltaKernelArgs& args, cudaStream_t stream) {
  const dim3 grid(grid_size(args.chunks), grid_size(args.heads / args.group));
  narrow_key_gradient_kernel<<<grid, kKeyThreads, 0, stream>>>(args);
  check_launch();
}

void launch_narrow_gradient(const DeltaKernelArgs& args, cudaStream_t stream) {
  CUDA_CHECK(cudaFuncSetAttribute(narrow_gradient_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kBytes)));
  narrow_gradient_kernel<<<grid_size(int64_t{args.chunks} * args.heads), kThreads, kBytes, stream>>>(args);
  check_launch();
}

bool delta_is_narrow(const DeltaKernelArgs& args) {
  if (!args.packed || args.key_dim != kNarrowDim || args.value_dim != kNarrowDim) return false;
  static const bool fits = [] {  // the largest of these kernels; GPUs before Hopper have less shared memory
    int device = 0, most = 0;
    cudaFuncAttributes attributes{};
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, narrow_gradient_kernel));
    return kBytes + static_cast<int64_t>(attributes.sharedSizeBytes) <= most;
  }();
  return fits;
}

}  // namespace megatrain
