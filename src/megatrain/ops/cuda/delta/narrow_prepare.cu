// prepare.cu in bf16 with heads of 128: M, U and W of a chunk, and the factors of its tokens.
#include "megatrain/ops/cuda/delta/inverse.cuh"
#include "megatrain/ops/cuda/delta/narrow.cuh"
#include "megatrain/ops/cuda/delta/narrow_kernels.h"

namespace megatrain {

namespace {

constexpr int kThreads = 128;
constexpr int64_t kBytes =
    4 * kChunkRows * kPairStride + 2 * narrow_bytes(kChunkRows, kNarrowDim) + 2 * narrow_bytes(kChunkRows, kChunkRows);

// scale / |x| of a chunk's rows x; eight lanes share a row.
__device__ void unit_factors(const Bf16* from, int64_t stride, int tokens, float scale, float (&factors)[kChunkRows]) {
  const int first = threadIdx.x % 8 * 8;
#pragma unroll
  for (int i = 0; i < kChunkRows / (kThreads / 8); ++i) {
    const int row = i * (kThreads / 8) + threadIdx.x / 8;
    float squares = 0;
    if (row < tokens) {
#pragma unroll
      for (int at = 0; at < kNarrowDim; at += 64) {
        float x[8];
        load<Bf16, 8>(from + row * stride + first + at, x);
#pragma unroll
        for (int j = 0; j < 8; ++j) squares += x[j] * x[j];
      }
    }
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xFFFFFFFFu, squares, offset);
    if (threadIdx.x % 8 == 0) factors[row] = row < tokens ? scale / sqrtf(squares + kDeltaNormEpsilon) : 0.0f;
  }
}

// A row of threads a token.
__device__ void complete_factors(const ChunkGates& gates, ChunkFactors& factors) {
  const int row = threadIdx.x;
  if (row < kChunkRows) {
    factors.read[row] = gates.kept[row] * factors.query[row];
    factors.written[row] = gates.rest[row] * factors.key[row];
  }
  if (row == 0) factors.kept = gates.kept[kChunkRows - 1];
}

struct PrepareTiles {
  SharedTile m;
  NarrowTile k, v, by_keys, by_values;  // M by columns' factors

  __device__ explicit PrepareTiles(float* memory) : m{memory, kPairStride} {
    NarrowMemory shared(memory + kChunkRows * kPairStride);
    k = shared.tile(kChunkRows, kNarrowDim);
    v = shared.tile(kChunkRows, kNarrowDim);
    by_keys = shared.tile(kChunkRows, kChunkRows);
    by_values = shared.tile(kChunkRows, kChunkRows);
  }
};

// M stays, times beta as the factor of V's rows and times that of K's; and goes to scratch if backward wants it.
__device__ void spread_inverse(const PrepareTiles& tiles, const ChunkGates& gates, const ChunkFactors& factors,
                               Bf16* inverse) {
  for (int i = threadIdx.x; i < kChunkRows * kChunkRows / 2; i += kThreads) {
    const int row = i / (kChunkRows / 2), at = i % (kChunkRows / 2) * 2;
    const float first = tiles.m(row, at), second = tiles.m(row, at + 1);
    const float of_first = first * gates.beta[at], of_second = second * gates.beta[at + 1];
    tiles.by_values.set_pair(row, at, of_first, of_second);
    tiles.by_keys.set_pair(row, at, of_first * (gates.kept[at] * factors.key[at]),
                           of_second * (gates.kept[at + 1] * factors.key[at + 1]));
    if (inverse) *reinterpret_cast<uint32_t*>(inverse + row * kChunkRows + at) = pack_pair(first, second);
  }
}

// grid (chunks * heads)
__global__ void __launch_bounds__(kThreads, 3) narrow_prepare_kernel(const __grid_constant__ DeltaKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  __shared__ ChunkFactors factors;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads, warp = threadIdx.x / 32;
  const ChunkPlace& place = args.places[chunk];
  const NarrowScratch scratch{args, chunk, head};
  const PrepareTiles tiles(memory);
  const Bf16 *const q = narrow_keys(args, args.q, place, head), *const k = narrow_keys(args, args.k, place, head);
  copy_tile<kNarrowDim>(tiles.k, k, args.k.stride, kChunkRows, place.tokens);
  copy_tile<kNarrowDim>(tiles.v, narrow_values(args.v, place, head), args.v.stride, kChunkRows, place.tokens);
  gates.load(args, place, head);
  unit_factors(q, args.q.stride, place.tokens, args.key_scale(), factors.query);
  unit_factors(k, args.k.stride, place.tokens, 1.0f, factors.key);
  await_tiles();
  complete_factors(gates, factors);
  WarpSums<1, 8> dots;
  narrow_matmul(dots, 0, kNarrowDim, Left{tiles.k, 16 * warp}, RightTransposed{tiles.k, 0});
  each_pair(dots, [&](int row, int j, float first, float second) {
    const int i = 16 * warp + row;
    const float scale = gates.beta[i] * factors.key[i];
    tiles.m(i, j) = j < i ? scale * factors.key[j] * gates.decay(i, j) * first : 0.0f;
    tiles.m(i, j + 1) = j + 1 < i ? scale * factors.key[j + 1] * gates.decay(i, j + 1) * second : 0.0f;
  });
  __syncthreads();
  invert(tiles.m);
  __syncthreads();
  spread_inverse(tiles, gates, factors, args.inverse ? scratch.inverse() : nullptr);
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(ChunkFactors) / sizeof(float)); i += kThreads)
    reinterpret_cast<float*>(&scratch.factors())[i] = reinterpret_cast<const float*>(&factors)[i];
  __syncthreads();
  // A warp has 32 rows, of which M reaches no token behind them, and half of the columns.
  const int row0 = warp % 2 * 32, column0 = warp / 2 * 64;
  WarpSums<2, 8> w;
  narrow_matmul(w, 0, row0 + 32, Left{tiles.by_keys, row0}, Right{tiles.k, column0});
  Bf16* const to_w = scratch.w() + row0 * kNarrowDim + column0;
  each_pair(w, [&](int i, int j, float first, float second) {
    *reinterpret_cast<uint32_t*>(to_w + i * kNarrowDim + j) = pack_pair(first, second);
  });
  WarpSums<2, 8> u;
  narrow_matmul(u, 0, row0 + 32, Left{tiles.by_values, row0}, Right{tiles.v, column0});
  float* const to_u = scratch.u() + row0 * kNarrowDim + column0;
  each_pair(u, [&](int i, int j, float first, float second) {
    *reinterpret_cast<float2*>(to_u + i * kNarrowDim + j) = float2{first, second};
  });
}

}  // namespace

void launch_narrow_prepare(const DeltaKernelArgs& args, cudaStream_t stream) {
  CUDA_CHECK(cudaFuncSetAttribute(narrow_prepare_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kBytes)));
  narrow_prepare_kernel<<<grid_size(int64_t{args.chunks} * args.heads), kThreads, kBytes, stream>>>(args);
  check_launch();
}

}  // namespace megatrain
