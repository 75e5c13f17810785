// The outputs of a chunk, out = exp(G) (C H) + M (step X) + skip X. A block is a chunk of one head.
#include "megatrain/ops/cuda/ssd/segment_kernels.h"
#include "megatrain/ops/cuda/ssd/tiles.cuh"

namespace megatrain {

namespace {

constexpr int64_t kOutputFloats = kSsdRows * (2 * kPartStride + kSsdPairStride + kSliceColumnStride);
static_assert(kSsdPart * kSliceColumnStride <= kSsdRows * kPartStride, "a part of a state takes the place of one of b");

// grid (chunks * heads)
template <class T>
__global__ void __launch_bounds__(kSsdThreads) ssd_output_kernel(const __grid_constant__ SsdKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkSteps steps;
  SharedMemory shared(memory);
  const SharedTile c = shared.tile(kSsdRows, kPartStride), b = shared.tile(kSsdRows, kPartStride),
                   pairs = shared.tile(kSsdRows, kSsdPairStride), x = shared.tile(kSsdRows, kSliceColumnStride);
  const SharedTile state{b.data, kSliceColumnStride};
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads;
  const ChunkPlace& place = args.places[chunk];
  const WarpPlace at;
  steps.load(args, place, head);
  score_pairs<T>(args, place, head, steps, c, b, pairs);
  const float skip = args.skip_of(head);
  for (int column = 0; column < args.head_dim; column += kSsdSlice) {
    WarpSums<1, 2> sums;
    rows_by_state<T>(sums, args, args.c, place, head, args.state_of(args.states, chunk, head), column, c, state);
    load_token_rows<T>(x, args.x, place, args.head_column(head) + column, args.head_dim - column, kSsdSlice);
    __syncthreads();
    WarpSums<1, 2> within;
    warp_matmul<kExactOperands<T>>(
        within, kSsdRows, [&](int i, int l) { return pairs(at.row + i, l); },
        [&](int l, int j) { return steps.step[l] * x(l, at.half * 16 + j); });
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = at.row + static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8;
        within.v[0][j][i] += steps.kept[row] * sums.v[0][j][i];
      }
    }
    within.each([&](int i, int j, float value) {
      const int row = at.row + i, of_slice = at.half * 16 + j;
      if (row < place.tokens && column + of_slice < args.head_dim)
        *args.out.at<T>(place.row + row, args.head_column(head) + column + of_slice) =
            narrow<T>(value + skip * x(row, of_slice));
    });
    __syncthreads();
  }
}

}  // namespace

void launch_ssd_output(const SsdKernelArgs& args, DType dtype, cudaStream_t stream) {
  const dim3 grid(grid_size(int64_t{args.chunks} * args.heads));
  visit_elements(dtype, [&](auto element) {
    launch_tiles(ssd_output_kernel<decltype(element)>, grid, kOutputFloats, stream, args);
  });
}

}  // namespace megatrain
