// output.cu in bf16 with heads of 128. A block is a chunk of one value head; all its tiles are copied at once.
#include "megatrain/ops/cuda/delta/narrow.cuh"
#include "megatrain/ops/cuda/delta/narrow_kernels.h"

namespace megatrain {

namespace {

constexpr int kThreads = 256;

struct OutputTiles {
  NarrowTile q, k, pairs, values, state;

  __device__ explicit OutputTiles(void* memory) {
    NarrowMemory shared(memory);
    q = shared.tile(kChunkRows, kNarrowDim);
    k = shared.tile(kChunkRows, kNarrowDim);
    pairs = shared.tile(kChunkRows, kChunkRows);
    values = shared.tile(kChunkRows, kNarrowDim);
    state = shared.tile(kNarrowDim, kNarrowDim);
  }
};
constexpr int64_t kBackBytes = 3 * narrow_bytes(kChunkRows, kNarrowDim) + narrow_bytes(kChunkRows, kChunkRows);
constexpr int64_t kOutputBytes = kBackBytes + narrow_bytes(kNarrowDim, kNarrowDim);

__device__ void copy_pair_tiles(const DeltaKernelArgs& args, const ChunkPlace& place, int head,
                                const OutputTiles& tiles) {
  copy_tile<kNarrowDim>(tiles.q, narrow_keys(args, args.q, place, head), args.q.stride, kChunkRows, place.tokens);
  copy_tile<kNarrowDim>(tiles.k, narrow_keys(args, args.k, place, head), args.k.stride, kChunkRows, place.tokens);
}

// P, once Q, K and the gates are there.
__device__ void score_pairs(const OutputTiles& tiles, const ChunkGates& gates, const ChunkFactors& factors) {
  const int warp = threadIdx.x / 32, row0 = warp % 4 * 16, column0 = warp / 4 * 32;
  WarpSums<1, 4> dots;
  if (column0 < row0 + 16) narrow_matmul(dots, 0, kNarrowDim, Left{tiles.q, row0}, RightTransposed{tiles.k, column0});
  each_pair(dots, [&](int row, int column, float first, float second) {
    const int i = row0 + row, j = column0 + column;
    tiles.pairs.set_pair(i, j, pair_decay(gates, i, j) * factors.query[i] * factors.key[j] * first,
                         pair_decay(gates, i, j + 1) * factors.query[i] * factors.key[j + 1] * second);
  });
}

// grid (chunks * heads)
__global__ void __launch_bounds__(kThreads, 2) narrow_output_kernel(const __grid_constant__ DeltaKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads, warp = threadIdx.x / 32;
  const ChunkPlace& place = args.places[chunk];
  const NarrowScratch scratch{args, chunk, head};
  const ChunkFactors& factors = scratch.factors();
  const OutputTiles tiles(memory);
  copy_pair_tiles(args, place, head, tiles);
  commit_copies();
  copy_tile<kNarrowDim>(tiles.state, scratch.state(), kNarrowDim, kNarrowDim, kNarrowDim);
  copy_tile<kNarrowDim>(tiles.values, scratch.d(), kNarrowDim, kChunkRows, kChunkRows);
  commit_copies();
  gates.load(args, place, head);
  wait_copies<1>();
  __syncthreads();
  score_pairs(tiles, gates, factors);
  wait_copies<0>();
  __syncthreads();
  const int row0 = warp % 2 * 32, column0 = warp / 2 * 32;
  WarpSums<2, 4> sums;
  narrow_matmul(sums, 0, kNarrowDim, Left{tiles.q, row0}, Right{tiles.state, column0});
  each_pair(sums, [&](int row, int, float& first, float& second) {
    first *= factors.read[row0 + row];
    second *= factors.read[row0 + row];
  });
  narrow_matmul(sums, 0, row0 + 32, Left{tiles.pairs, row0}, Right{tiles.values, column0});
  each_pair(sums, [&](int row, int column, float first, float second) {
    const int i = row0 + row;
    if (i < place.tokens)
      *reinterpret_cast<uint32_t*>(args.out.at<Bf16>(
          place.row + i, static_cast<int64_t>(head) * kNarrowDim + column0 + column)) = pack_pair(first, second);
  });
}

// The part of the gradient of D that the chunk's outputs give, P^T dO; grid (chunks * heads)
__global__ void __launch_bounds__(kThreads, 3) narrow_output_back_kernel(const __grid_constant__ DeltaKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads, warp = threadIdx.x / 32;
  const ChunkPlace& place = args.places[chunk];
  const NarrowScratch scratch{args, chunk, head};
  const OutputTiles tiles(memory);
  copy_pair_tiles(args, place, head, tiles);
  copy_tile<kNarrowDim>(tiles.values, narrow_values(args.grad_out, place, head), args.grad_out.stride, kChunkRows,
                        place.tokens);
  gates.load(args, place, head);
  await_tiles();
  score_pairs(tiles, gates, scratch.factors());
  __syncthreads();
  const int row0 = warp % 2 * 32, column0 = warp / 2 * 32;
  WarpSums<2, 4> sums;
  narrow_matmul(sums, row0, kChunkRows, LeftTransposed{tiles.pairs, row0}, Right{tiles.values, column0});
  float* const to = scratch.grad_d_of_outputs() + row0 * kNarrowDim + column0;
  each_pair(sums, [&](int i, int j, float first, float second) {
    *reinterpret_cast<float2*>(to + i * kNarrowDim + j) = float2{first, second};
  });
}

template <class Kernel>
void launch_blocks(const DeltaKernelArgs& args, Kernel kernel, int64_t bytes, cudaStream_t stream) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  kernel<<<grid_size(int64_t{args.chunks} * args.heads), kThreads, static_cast<size_t>(bytes), stream>>>(args);
  check_launch();
}

}  // namespace

void launch_narrow_output(const DeltaKernelArgs& args, cudaStream_t stream) {
  launch_blocks(args, narrow_output_kernel, kOutputBytes, stream);
}

void launch_narrow_output_back(const DeltaKernelArgs& args, cudaStream_t stream) {
  launch_blocks(args, narrow_output_back_kernel, kBackBytes, stream);
}

}  // namespace megatrain
