// The outputs of a chunk of the delta rule, out = exp(G) (Q S) + P D, and back from them to D. A block is a chunk of
// one value head.
#include "megatrain/ops/cuda/delta/narrow_kernels.h"
#include "megatrain/ops/cuda/delta/segment_kernels.h"
#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kStateStride = kSlice + 8;  // states, D and the gradient of out are read along their columns

// Q and P stay; K is there for P alone, and then a slice of the state and of the values takes its place.
struct OutputTiles {
  SharedTile q, pairs, k, state, values;

  __device__ OutputTiles(float* memory, const DeltaKernelArgs& args) {
    SharedMemory shared(memory);
    q = shared.tile(kChunkRows, args.keys() + 4);
    pairs = shared.tile(kChunkRows, kPairStride);
    SharedMemory slices = shared;
    k = shared.tile(kChunkRows, args.keys() + 4);
    state = slices.tile(args.keys(), kStateStride);
    values = slices.tile(kChunkRows, kStateStride);
  }
};

int64_t output_bytes(const DeltaKernelArgs& args) {
  const int64_t keys = kChunkRows * (args.keys() + 4), slices = (args.keys() + kChunkRows) * kStateStride;
  return int64_t{4} * (keys + kChunkRows * kPairStride + (keys > slices ? keys : slices));
}

template <class T>
__device__ void load_scores(const DeltaKernelArgs& args, const ChunkPlace& place, int head, const OutputTiles& tiles,
                            ChunkGates& gates) {
  gates.load(args, place, head);
  load_keys<T>(tiles.q, args, args.q, place, head, args.key_scale());
  load_keys<T>(tiles.k, args, args.k, place, head, 1.0f);
  __syncthreads();
  score_pairs<kExactOperands<T>>(tiles.q, tiles.k, gates, args.keys(), tiles.pairs);
}

// grid (chunks * heads)
template <class T>
__global__ void __launch_bounds__(kThreads, 2) delta_output_kernel(const __grid_constant__ DeltaKernelArgs args) {
  constexpr bool kExact = kExactOperands<T>;
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads, warp = threadIdx.x / 32;
  const ChunkPlace& place = args.places[chunk];
  const OutputTiles tiles(memory, args);
  load_scores<T>(args, place, head, tiles, gates);
  const int row0 = warp % 4 * 16, column0 = warp / 4 * 16;  // a warp's tile of a slice
  for (int column = 0; column < args.value_dim; column += kSlice) {
    __syncthreads();
    load_matrix(tiles.state, args.state_of(args.states, chunk, head), args.key_dim, args.keys(), args.value_dim, column,
                kSlice);
    load_matrix(tiles.values, args.values_of(args.d, chunk, head), kChunkRows, kChunkRows, args.value_dim, column,
                kSlice);
    await_tiles();
    WarpSums<1, 2> sums;
    warp_matmul<kExact>(
        sums, args.keys(), [&](int i, int l) { return tiles.q(row0 + i, l) * gates.kept[row0 + i]; },
        [&](int l, int j) { return tiles.state(l, column0 + j); });
    warp_matmul<kExact>(
        sums, kChunkRows, [&](int i, int l) { return tiles.pairs(row0 + i, l); },
        [&](int l, int j) { return tiles.values(l, column0 + j); });
    sums.each([&](int i, int j, float value) {
      const int row = row0 + i, at = column + column0 + j;
      if (row < place.tokens && at < args.value_dim)
        *args.out.at<T>(place.row + row, static_cast<int64_t>(head) * args.value_dim + at) = narrow<T>(value);
    });
  }
}

// grad_d = P^T dO; grid (chunks * heads)
template <class T>
__global__ void __launch_bounds__(kThreads, 2) delta_output_back_kernel(const __grid_constant__ DeltaKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads;
  const ChunkPlace& place = args.places[chunk];
  const OutputTiles tiles(memory, args);
  load_scores<T>(args, place, head, tiles, gates);
  float* const grad_d = args.values_of(args.grad_d, chunk, head);
  for (int column = 0; column < args.value_dim; column += kSlice) {
    __syncthreads();
    load_values<T>(tiles.values, args, args.grad_out, place, head, column, kSlice);
    __syncthreads();
    block_matmul<kExactOperands<T>, 1, 2>(
        kChunkRows, kSlice, kChunkRows, [&](int i, int l) { return tiles.pairs(l, i); },
        [&](int l, int j) { return tiles.values(l, j); },
        [&](int i, int j, float value) {
          if (column + j < args.value_dim) grad_d[i * args.value_dim + column + j] = value;
        });
  }
}

template <class Kernel>
void launch_blocks(const DeltaKernelArgs& args, Kernel kernel, cudaStream_t stream) {
  const int64_t bytes = output_bytes(args);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  kernel<<<grid_size(int64_t{args.chunks} * args.heads), kThreads, static_cast<size_t>(bytes), stream>>>(args);
  check_launch();
}

}  // namespace

void launch_delta_output(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream) {
  if (args.narrow) return launch_narrow_output(args, stream);
  visit_elements(dtype, [&](auto element) { launch_blocks(args, delta_output_kernel<decltype(element)>, stream); });
}

void launch_delta_output_back(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream) {
  if (args.narrow) return launch_narrow_output_back(args, stream);
  visit_elements(dtype,
                 [&](auto element) { launch_blocks(args, delta_output_back_kernel<decltype(element)>, stream); });
}

}  // namespace megatrain
