// What a chunk of the delta rule needs of its own tokens: M, the inverse of I + A (ops/cpu/delta_chunk.h), and with it
// U and W. A block is a chunk of one value head.
#include "megatrain/ops/cuda/delta/inverse.cuh"
#include "megatrain/ops/cuda/delta/narrow_kernels.h"
#include "megatrain/ops/cuda/delta/segment_kernels.h"
#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;

int64_t prepare_bytes(const DeltaKernelArgs& args) {
  return int64_t{4} * kChunkRows * (args.keys() + 4 + args.values() + 8 + kPairStride);
}

// grid (chunks * heads)
template <class T>
__global__ void __launch_bounds__(kThreads, 2) delta_prepare_kernel(const __grid_constant__ DeltaKernelArgs args) {
  constexpr bool kExact = kExactOperands<T>;
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads;
  const int keys = args.keys(), values = args.values();
  const ChunkPlace& place = args.places[chunk];
  SharedMemory shared(memory);
  const SharedTile k = shared.tile(kChunkRows, keys + 4), v = shared.tile(kChunkRows, values + 8),
                   m = shared.tile(kChunkRows, kPairStride);
  gates.load(args, place, head);
  load_keys<T>(k, args, args.k, place, head, 1.0f);
  load_values<T, 4>(v, args, args.v, place, head, 0, values);
  __syncthreads();
  block_matmul<kExact, 1, 2>(
      kChunkRows, kChunkRows, keys, [&](int i, int l) { return k(i, l); }, [&](int l, int j) { return k(j, l); },
      [&](int i, int j, float dot) { m(i, j) = j < i ? gates.beta[i] * gates.decay(i, j) * dot : 0.0f; });
  __syncthreads();
  invert(m);
  __syncthreads();
  float* const w = args.keys_of(args.w, chunk, head);
  block_matmul<kExact, 2, 2>(
      kChunkRows, keys, kChunkRows, [&](int i, int l) { return m(i, l) * (gates.beta[l] * gates.kept[l]); },
      [&](int l, int j) { return k(l, j); },
      [&](int i, int j, float value) {
        if (j < args.key_dim) w[i * args.key_dim + j] = value;
      });
  float* const u = args.values_of(args.d, chunk, head);
  block_matmul<kExact, 2, 2>(
      kChunkRows, values, kChunkRows, [&](int i, int l) { return m(i, l) * gates.beta[l]; },
      [&](int l, int j) { return v(l, j); },
      [&](int i, int j, float value) {
        if (j < args.value_dim) u[i * args.value_dim + j] = value;
      });
  if (args.inverse) store_matrix(m, args.inverse_of(chunk, head), kChunkRows, kChunkRows, 0, kChunkRows);
}

}  // namespace

void launch_delta_prepare(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream) {
  if (args.narrow) return launch_narrow_prepare(args, stream);
  const int64_t bytes = prepare_bytes(args);
  visit_elements(dtype, [&](auto element) {
    using T = decltype(element);
    CUDA_CHECK(cudaFuncSetAttribute(delta_prepare_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(bytes)));
    delta_prepare_kernel<T>
        <<<grid_size(int64_t{args.chunks} * args.heads), kThreads, static_cast<size_t>(bytes), stream>>>(args);
  });
  check_launch();
}

}  // namespace megatrain
