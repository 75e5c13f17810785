// States between chunks. A block of the first kernels is a slice of one head's columns in one chunk; the scans have a
// thread for each element of a state, and only they go from chunk to chunk.
#include "megatrain/ops/cuda/ssd/segment_kernels.h"
#include "megatrain/ops/cuda/ssd/tiles.cuh"

namespace megatrain {

namespace {

// to (N, P) = rows^T (by values): forward (exp(G_last - G) step B)^T X, backward (exp(G) C)^T dOut.
// grid (chunks, heads, slices)
template <class T, bool kBackward>
__global__ void __launch_bounds__(kSsdThreads) ssd_states_kernel(const __grid_constant__ SsdKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkSteps steps;
  SharedMemory shared(memory);
  const SharedTile rows = shared.tile(kSsdRows, kPartColumnStride), values = shared.tile(kSsdRows, kSliceColumnStride);
  const int chunk = blockIdx.x, head = blockIdx.y, column = blockIdx.z * kSsdSlice;
  const ChunkPlace& place = args.places[chunk];
  const WarpPlace at;
  steps.load(args, place, head);
  load_token_rows<T>(values, kBackward ? args.grad_out : args.x, place, args.head_column(head) + column,
                     args.head_dim - column, kSsdSlice);
  float* const to = args.state_of(kBackward ? args.grad_states : args.states, chunk, head);
  for (int part = 0; part < args.state_dim; part += kSsdPart) {
    __syncthreads();
    load_token_rows<T>(rows, kBackward ? args.c : args.b, place, args.group_column(head) + part, args.state_dim - part,
                       kSsdPart);
    __syncthreads();
    WarpSums<1, 2> sums;
    warp_matmul<kExactOperands<T>>(
        sums, kSsdRows, [&](int i, int l) { return rows(l, at.row + i); },
        [&](int l, int j) {
          return (kBackward ? steps.kept[l] : steps.rest[l] * steps.step[l]) * values(l, at.half * 16 + j);
        });
    sums.each([&](int i, int j, float value) {
      const int row = part + at.row + i, to_column = column + at.half * 16 + j;
      if (row < args.state_dim && to_column < args.head_dim)
        to[static_cast<int64_t>(row) * args.head_dim + to_column] = value;
    });
  }
  if (!kBackward && blockIdx.z == 0 && threadIdx.x == 0) args.kept[args.place(chunk, head)] = steps.kept[kSsdRows - 1];
}

// grid (elements of a state / kSsdThreads, heads)
__global__ void ssd_scan_kernel(const __grid_constant__ SsdKernelArgs args) {
  const int64_t size = args.state_size(), i = static_cast<int64_t>(blockIdx.x) * kSsdThreads + threadIdx.x;
  const int head = blockIdx.y;
  if (i >= size) return;
  float state = args.before ? args.before[head * size + i] : 0.0f;
  for (int chunk = 0; chunk < args.chunks; ++chunk) {
    float& place = args.state_of(args.states, chunk, head)[i];
    if (args.places[chunk].first) state = 0;
    const float added = place;
    place = state;
    state = args.kept[args.place(chunk, head)] * state + added;
  }
  if (args.after) args.after[head * size + i] = state;
}

__global__ void ssd_scan_back_kernel(const __grid_constant__ SsdKernelArgs args) {
  const int64_t size = args.state_size(), i = static_cast<int64_t>(blockIdx.x) * kSsdThreads + threadIdx.x;
  const int head = blockIdx.y;
  if (i >= size) return;
  float grad = args.before ? args.before[head * size + i] : 0.0f;
  for (int chunk = args.chunks - 1; chunk >= 0; --chunk) {
    float& place = args.state_of(args.grad_states, chunk, head)[i];
    if (args.places[chunk].last) grad = 0;
    const float added = place;
    place = grad;
    grad = args.kept[args.place(chunk, head)] * grad + added;
  }
  if (args.after) args.after[head * size + i] = grad;
}

template <bool kBackward>
void launch_states(const SsdKernelArgs& args, DType dtype, cudaStream_t stream) {
  constexpr int64_t kFloats = kSsdRows * (kPartColumnStride + kSliceColumnStride);
  const dim3 grid(grid_size(args.chunks), grid_size(args.heads), grid_size(ceil_div(args.head_dim, kSsdSlice)));
  visit_elements(dtype, [&](auto element) {
    launch_tiles(ssd_states_kernel<decltype(element), kBackward>, grid, kFloats, stream, args);
  });
}

dim3 scan_grid(const SsdKernelArgs& args) {
  return dim3(grid_size(ceil_div(static_cast<int64_t>(args.state_dim) * args.head_dim, int64_t{kSsdThreads})),
              grid_size(args.heads));
}

}  // namespace

void launch_ssd_states(const SsdKernelArgs& args, DType dtype, cudaStream_t stream) {
  launch_states<false>(args, dtype, stream);
}
void launch_ssd_states_back(const SsdKernelArgs& args, DType dtype, cudaStream_t stream) {
  launch_states<true>(args, dtype, stream);
}
void launch_ssd_scan(const SsdKernelArgs& args, cudaStream_t stream) {
  ssd_scan_kernel<<<scan_grid(args), kSsdThreads, 0, stream>>>(args);
  check_launch();
}
void launch_ssd_scan_back(const SsdKernelArgs& args, cudaStream_t stream) {
  ssd_scan_back_kernel<<<scan_grid(args), kSsdThreads, 0, stream>>>(args);
  check_launch();
}

}  // namespace megatrain
