// The part of the delta rule that goes from chunk to chunk. Columns of a state do not depend on each other, so a block
// has kSlice columns of one value head and walks over the chunks of one document. A block is launched for every chunk,
// and only those at the start of a walk work.
#include "megatrain/ops/cuda/delta/narrow_kernels.h"
#include "megatrain/ops/cuda/delta/segment_kernels.h"
#include "megatrain/ops/cuda/delta/tiles.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kStateStride = kSlice + 8;  // states and D are read along their columns (tf32.cuh)

// The shared memory of a walk, and its state. `columns` and `more_columns` are read along their columns; `rows` is in
// the place of `columns`.
struct Walk {
  SharedTile columns, more_columns, rows, state, values, more_values;

  __device__ Walk(float* memory, const DeltaKernelArgs& args) {
    SharedMemory shared(memory);
    rows = SharedTile{memory, args.keys() + 4};
    columns = shared.tile(kChunkRows, args.keys() + 8);
    more_columns = shared.tile(kChunkRows, args.keys() + 8);
    state = shared.tile(args.keys(), kStateStride);
    values = shared.tile(kChunkRows, kStateStride);
    more_values = shared.tile(kChunkRows, kStateStride);
  }

  // From `from` (heads, key_dim, value_dim), or zeros.
  __device__ void start(const DeltaKernelArgs& args, const float* from, int head, int column) const {
    const int64_t size = static_cast<int64_t>(args.key_dim) * args.value_dim;
    load_matrix(state, from ? from + head * size : args.w, from ? args.key_dim : 0, args.keys(), args.value_dim, column,
                kSlice);
  }
  __device__ void finish(const DeltaKernelArgs& args, float* to, int head, int column) const {
    const int64_t size = static_cast<int64_t>(args.key_dim) * args.value_dim;
    store_matrix(state, to + head * size, args.key_dim, args.value_dim, column, kSlice);
  }
};

int64_t walk_bytes(const DeltaKernelArgs& args) {
  const int64_t rows = 2 * kChunkRows * (args.keys() + 8);
  return int64_t{4} * (rows + (args.keys() + 2 * kChunkRows) * kStateStride);
}

// grid (chunks, heads, slices)
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    delta_scan_kernel(const __grid_constant__ DeltaKernelArgs args, bool keep) {
  constexpr bool kExact = kExactOperands<T>;
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  int chunk = blockIdx.x;
  const int head = blockIdx.y, column = blockIdx.z * kSlice, keys = args.keys();
  if (chunk > 0 && !args.places[chunk].first) return;
  const Walk walk(memory, args);
  const SharedTile &k = walk.more_columns, &w = walk.rows, &state = walk.state, &d = walk.values;
  walk.start(args, args.places[chunk].first ? nullptr : args.before, head, column);
  for (;; ++chunk) {
    const ChunkPlace& place = args.places[chunk];
    load_matrix(w, args.keys_of(args.w, chunk, head), kChunkRows, kChunkRows, args.key_dim, 0, keys);
    load_matrix(d, args.values_of(args.d, chunk, head), kChunkRows, kChunkRows, args.value_dim, column, kSlice);
    gates.load(args, place, head);
    load_keys<T>(k, args, args.k, place, head, 1.0f);
    await_tiles();
    if (keep)
      store_matrix(state, args.state_of(args.states, chunk, head), args.key_dim, args.value_dim, column, kSlice);
    block_matmul<kExact, 1, 2>(
        kChunkRows, kSlice, keys, [&](int i, int l) { return w(i, l); }, [&](int l, int j) { return state(l, j); },
        [&](int i, int j, float value) { d(i, j) -= value; });
    __syncthreads();
    if (keep) store_matrix(d, args.values_of(args.d, chunk, head), kChunkRows, args.value_dim, column, kSlice);
    const float kept = gates.kept[kChunkRows - 1];
    block_matmul<kExact, 2, 2>(
        keys, kSlice, kChunkRows, [&](int i, int l) { return k(l, i); },
        [&](int l, int j) { return gates.rest[l] * d(l, j); },
        [&](int i, int j, float value) { state(i, j) = kept * state(i, j) + value; });
    __syncthreads();
    if (place.last || chunk + 1 == args.chunks) break;
  }
  if (!args.places[chunk].last && args.after) walk.finish(args, args.after, head, column);
}

// grid (chunks, heads, slices)
template <class T>
__global__ void __launch_bounds__(kThreads, 2) delta_scan_back_kernel(const __grid_constant__ DeltaKernelArgs args) {
  constexpr bool kExact = kExactOperands<T>;
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkGates gates;
  int chunk = blockIdx.x;
  const int head = blockIdx.y, column = blockIdx.z * kSlice, keys = args.keys();
  if (chunk + 1 < args.chunks && !args.places[chunk].last) return;
  const Walk walk(memory, args);
  const SharedTile &k = walk.rows, &w = walk.columns, &q = walk.more_columns, &grad_state = walk.state,
                   &grad_d = walk.values, &grad_out = walk.more_values;
  walk.start(args, args.places[chunk].last ? nullptr : args.before, head, column);
  for (;; --chunk) {
    const ChunkPlace& place = args.places[chunk];
    load_matrix(grad_d, args.values_of(args.grad_d, chunk, head), kChunkRows, kChunkRows, args.value_dim, column,
                kSlice);
    gates.load(args, place, head);
    load_keys<T>(k, args, args.k, place, head, 1.0f);
    load_keys<T>(q, args, args.q, place, head, args.key_scale());
    load_values<T>(grad_out, args, args.grad_out, place, head, column, kSlice);
    await_tiles();
    store_matrix(grad_state, args.state_of(args.grad_states, chunk, head), args.key_dim, args.value_dim, column,
                 kSlice);
    block_matmul<kExact, 1, 2>(
        kChunkRows, kSlice, keys, [&](int i, int l) { return k(i, l); }, [&](int l, int j) { return grad_state(l, j); },
        [&](int i, int j, float value) { grad_d(i, j) += gates.rest[i] * value; });
    __syncthreads();
    load_matrix(w, args.keys_of(args.w, chunk, head), kChunkRows, kChunkRows, args.key_dim, 0, keys);
    store_matrix(grad_d, args.values_of(args.grad_d, chunk, head), kChunkRows, args.value_dim, column, kSlice);
    await_tiles();
    const float kept = gates.kept[kChunkRows - 1];
    // (kept Q)^T dO - W^T dD, one sum over twice the tokens
    block_matmul<kExact, 2, 2>(
        keys, kSlice, 2 * kChunkRows, [&](int i, int l) { return l < kChunkRows ? q(l, i) : -w(l - kChunkRows, i); },
        [&](int l, int j) { return l < kChunkRows ? gates.kept[l] * grad_out(l, j) : grad_d(l - kChunkRows, j); },
        [&](int i, int j, float value) { grad_state(i, j) = kept * grad_state(i, j) + value; });
    __syncthreads();
    if (place.first || chunk == 0) break;
  }
  if (!args.places[chunk].first && args.after) walk.finish(args, args.after, head, column);
}

template <class Kernel>
dim3 scan_grid(const DeltaKernelArgs& args, Kernel kernel) {
  CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(walk_bytes(args))));
  return dim3(grid_size(args.chunks), grid_size(args.heads), grid_size(args.values() / kSlice));
}

}  // namespace

void launch_delta_scan(const DeltaKernelArgs& args, bool keep, DType dtype, cudaStream_t stream) {
  if (args.narrow) return launch_narrow_scan(args, keep, stream);
  visit_elements(dtype, [&](auto element) {
    const auto kernel = delta_scan_kernel<decltype(element)>;
    const dim3 grid = scan_grid(args, kernel);
    kernel<<<grid, kThreads, static_cast<size_t>(walk_bytes(args)), stream>>>(args, keep);
  });
  check_launch();
}

void launch_delta_scan_back(const DeltaKernelArgs& args, DType dtype, cudaStream_t stream) {
  if (args.narrow) return launch_narrow_scan_back(args, stream);
  visit_elements(dtype, [&](auto element) {
    const auto kernel = delta_scan_back_kernel<decltype(element)>;
    const dim3 grid = scan_grid(args, kernel);
    kernel<<<grid, kThreads, static_cast<size_t>(walk_bytes(args)), stream>>>(args);
  });
  check_launch();
}

}  // namespace megatrain
