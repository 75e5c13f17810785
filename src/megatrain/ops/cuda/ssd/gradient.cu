// The gradients of a chunk. A block of the first kernel is a chunk of one head, one of the second a chunk of one group
// and some columns of its b and c, whose gradients it adds over the group's heads in order.
#include "megatrain/ops/cuda/ssd/segment_kernels.h"
#include "megatrain/ops/cuda/ssd/tiles.cuh"

namespace megatrain {

namespace {

// Each of 64 rows has four threads, which share its columns and all get its sums.
struct RowSums {
  double read = 0;     // exp(G) (C H) . dOut
  double carried = 0;  // exp(G_last - G) (B dH') . step X
  double step = 0;     // X . dV

  __device__ static int row() { return static_cast<int>(threadIdx.x) / 4; }
  // The sum of a row of terms (64, kSsdSlice), by all of the row's threads.
  __device__ static float sum(const SharedTile& terms) {
    const int lane = threadIdx.x % 4;
    float x = 0;
    for (int j = lane; j < kSsdSlice; j += 4) x += terms(row(), j);
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
  }
};

// A block's shared memory. A part of rows and one of a state take turns with the terms of row sums and with b.
struct GradientTiles {
  SharedTile c, b, pairs, grad_pairs, x, grad_out, carried, state, terms;

  __device__ explicit GradientTiles(float* memory) {
    SharedMemory shared(memory);
    c = shared.tile(kSsdRows, kPartStride);
    b = shared.tile(kSsdRows, kPartStride);
    pairs = shared.tile(kSsdRows, kSsdPairStride);
    grad_pairs = shared.tile(kSsdRows, kSsdPairStride);
    x = shared.tile(kSsdRows, kSliceColumnStride);
    grad_out = shared.tile(kSsdRows, kSliceColumnStride);
    carried = shared.tile(kSsdRows, kSliceStride);
    state = {b.data, kSliceColumnStride};
    terms = {c.data, kSliceStride};
  }
};
constexpr int64_t kGradientFloats =
    kSsdRows * (2 * kPartStride + 2 * kSsdPairStride + 2 * kSliceColumnStride + kSliceStride);

// grad_pairs = dOut (step X)^T for j <= i, else 0
template <class T>
__device__ void pair_gradients(const SsdKernelArgs& args, const ChunkPlace& place, int head, const ChunkSteps& steps,
                               const GradientTiles& tiles) {
  const WarpPlace at;
  WarpSums<1, 4> sums;
  const SharedTile x{tiles.x.data, kSliceStride}, grad_out{tiles.grad_out.data, kSliceStride};
  for (int column = 0; column < args.head_dim; column += kSsdSlice) {
    __syncthreads();
    load_token_rows<T>(x, args.x, place, args.head_column(head) + column, args.head_dim - column, kSsdSlice);
    load_token_rows<T>(grad_out, args.grad_out, place, args.head_column(head) + column, args.head_dim - column,
                       kSsdSlice);
    __syncthreads();
    warp_matmul<kExactOperands<T>>(
        sums, kSsdSlice, [&](int i, int l) { return grad_out(at.row + i, l); },
        [&](int l, int j) { return x(at.half * 32 + j, l) * steps.step[at.half * 32 + j]; });
  }
  sums.each([&](int i, int j, float value) {
    const int row = at.row + i, column = at.half * 32 + j;
    tiles.grad_pairs(row, column) = column <= row ? value : 0.0f;
  });
}

// Gradients of x, and the sums of rows, slice by slice.
template <class T>
__device__ void token_gradients(const SsdKernelArgs& args, int chunk, int head, const ChunkSteps& steps,
                                const GradientTiles& tiles, RowSums& rows) {
  const WarpPlace at;
  const ChunkPlace& place = args.places[chunk];
  const float skip = args.skip_of(head);
  for (int column = 0; column < args.head_dim; column += kSsdSlice) {
    __syncthreads();
    load_token_rows<T>(tiles.x, args.x, place, args.head_column(head) + column, args.head_dim - column, kSsdSlice);
    load_token_rows<T>(tiles.grad_out, args.grad_out, place, args.head_column(head) + column, args.head_dim - column,
                       kSsdSlice);
    WarpSums<1, 2> read;
    rows_by_state<T>(read, args, args.c, place, head, args.state_of(args.states, chunk, head), column, tiles.c,
                     tiles.state);
    __syncthreads();
    read.each([&](int i, int j, float value) {
      const int row = at.row + i, of_slice = at.half * 16 + j;
      tiles.terms(row, of_slice) = steps.kept[row] * value * tiles.grad_out(row, of_slice);
    });
    __syncthreads();
    rows.read += RowSums::sum(tiles.terms);
    WarpSums<1, 2> carried;
    rows_by_state<T>(carried, args, args.b, place, head, args.state_of(args.grad_states, chunk, head), column, tiles.c,
                     tiles.state);
    __syncthreads();
    carried.each([&](int i, int j, float value) {
      const int row = at.row + i, of_slice = at.half * 16 + j;
      const float part = steps.rest[row] * value;
      tiles.carried(row, of_slice) = part;
      tiles.terms(row, of_slice) = part * (steps.step[row] * tiles.x(row, of_slice));
    });
    __syncthreads();
    rows.carried += RowSums::sum(tiles.terms);
    WarpSums<1, 2> written;
    warp_matmul<kExactOperands<T>>(
        written, kSsdRows, [&](int i, int l) { return tiles.pairs(l, at.row + i); },
        [&](int l, int j) { return tiles.grad_out(l, at.half * 16 + j); });
    __syncthreads();
    written.each([&](int i, int j, float value) {
      const int row = at.row + i, of_slice = at.half * 16 + j;
      const float grad = value + tiles.carried(row, of_slice);
      tiles.terms(row, of_slice) = grad * tiles.x(row, of_slice);
      if (row < place.tokens && column + of_slice < args.head_dim)
        *args.grad_x.at<T>(place.row + row, args.head_column(head) + column + of_slice) =
            narrow<T>(steps.step[row] * grad + skip * tiles.grad_out(row, of_slice));
    });
    __syncthreads();
    rows.step += RowSums::sum(tiles.terms);
  }
}

// <H, dH'>. Every thread gets it.
__device__ float state_product(const SsdKernelArgs& args, int chunk, int head, float* warps) {
  const float* state = args.state_of(args.states, chunk, head);
  const float* grad = args.state_of(args.grad_states, chunk, head);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < args.state_size(); i += kSsdThreads) sum += state[i] * grad[i];
  return block_sum(sum, warps);
}

// grid (chunks * heads)
template <class T>
__global__ void __launch_bounds__(kSsdThreads) ssd_gradient_kernel(const __grid_constant__ SsdKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkSteps steps;
  __shared__ double slopes[kSsdRows];
  __shared__ float warps[kSsdThreads / 32];
  const GradientTiles tiles(memory);
  const int chunk = blockIdx.x / args.heads, head = blockIdx.x % args.heads;
  const ChunkPlace& place = args.places[chunk];
  steps.load(args, place, head);
  score_pairs<T>(args, place, head, steps, tiles.c, tiles.b, tiles.pairs);
  pair_gradients<T>(args, place, head, steps, tiles);
  RowSums rows;
  token_gradients<T>(args, chunk, head, steps, tiles, rows);
  const float behind = steps.kept[kSsdRows - 1] * state_product(args, chunk, head, warps);
  if (threadIdx.x % 4 == 0) {
    const int row = RowSums::row();
    double slope = rows.read - rows.carried;
    for (int j = 0; j < row; ++j) slope += static_cast<double>(tiles.grad_pairs(row, j)) * tiles.pairs(row, j);
    for (int i = row + 1; i < kSsdRows; ++i)
      slope -= static_cast<double>(tiles.grad_pairs(i, row)) * tiles.pairs(i, row);
    slopes[row] = slope;
    tiles.carried(row, 0) = static_cast<float>(rows.carried);
    if (row < place.tokens) *args.grad_step.at<float>(place.row + row, head) = static_cast<float>(rows.step);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = behind;
    for (int row = 0; row < kSsdRows; ++row) sum += tiles.carried(row, 0);
    for (int row = place.tokens - 1; row >= 0; --row)
      *args.grad_g.at<float>(place.row + row, head) = static_cast<float>(sum += slopes[row]);
  }
  float* const to = args.pairs_of(chunk, head);
  for (int i = threadIdx.x; i < kSsdRows * kSsdRows; i += kSsdThreads) {
    const int row = i / kSsdRows, column = i % kSsdRows;
    to[i] = column <= row ? tiles.grad_pairs(row, column) * steps.decay(row, column) : 0.0f;
  }
}

// A block's shared memory.
struct GroupTiles {
  SharedTile pairs, c, b, grad_out, x, state, grad_state;

  __device__ explicit GroupTiles(float* memory) {
    SharedMemory shared(memory);
    pairs = shared.tile(kSsdRows, kSsdRows + 8);  // read along rows and along columns
    grad_out = shared.tile(kSsdRows, kSliceStride);
    x = shared.tile(kSsdRows, kSliceStride);
    state = shared.tile(kSsdPart, kSliceStride);
    grad_state = shared.tile(kSsdPart, kSliceStride);
    c = SharedTile{grad_out.data, kPartColumnStride};  // behind the heads
    b = SharedTile{state.data, kPartColumnStride};
  }
};
constexpr int64_t kGroupFloats = kSsdRows * (kSsdRows + 8 + 4 * kSliceStride);
static_assert(kPartColumnStride <= 2 * kSliceStride, "c and b take the places of two tiles each");

// What one head adds to the gradients of c and b through the states.
template <class T>
__device__ void add_head(const SsdKernelArgs& args, int chunk, int head, int part, const ChunkSteps& steps,
                         const GroupTiles& tiles, WarpSums<1, 4>& grad_c, WarpSums<1, 4>& grad_b) {
  const WarpPlace at;
  const ChunkPlace& place = args.places[chunk];
  for (int column = 0; column < args.head_dim; column += kSsdSlice) {
    __syncthreads();
    load_token_rows<T>(tiles.grad_out, args.grad_out, place, args.head_column(head) + column, args.head_dim - column,
                       kSsdSlice);
    load_token_rows<T>(tiles.x, args.x, place, args.head_column(head) + column, args.head_dim - column, kSsdSlice);
    load_state(tiles.state, args.state_of(args.states, chunk, head), args.state_dim, args.head_dim, part, column);
    load_state(tiles.grad_state, args.state_of(args.grad_states, chunk, head), args.state_dim, args.head_dim, part,
               column);
    __syncthreads();
    warp_matmul<kExactOperands<T>>(
        grad_c, kSsdSlice, [&](int i, int l) { return steps.kept[at.row + i] * tiles.grad_out(at.row + i, l); },
        [&](int l, int j) { return tiles.state(at.half * 32 + j, l); });
    warp_matmul<kExactOperands<T>>(
        grad_b, kSsdSlice,
        [&](int i, int l) { return steps.rest[at.row + i] * steps.step[at.row + i] * tiles.x(at.row + i, l); },
        [&](int l, int j) { return tiles.grad_state(at.half * 32 + j, l); });
  }
}

// grid (chunks, groups, parts)
template <class T>
__global__ void __launch_bounds__(kSsdThreads) ssd_group_gradient_kernel(const __grid_constant__ SsdKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  __shared__ ChunkSteps steps;
  const GroupTiles tiles(memory);
  const int chunk = blockIdx.x, first = blockIdx.y * args.group, part = blockIdx.z * kSsdPart;
  const ChunkPlace& place = args.places[chunk];
  const WarpPlace at;
  WarpSums<1, 4> grad_c, grad_b;
  for (int i = threadIdx.x; i < kSsdRows * kSsdRows; i += kSsdThreads) tiles.pairs(i / kSsdRows, i % kSsdRows) = 0;
  for (int head = first; head < first + args.group; ++head) {
    __syncthreads();
    steps.load(args, place, head);
    const float* pairs = args.pairs_of(chunk, head);
    for (int i = threadIdx.x; i < kSsdRows * kSsdRows; i += kSsdThreads)
      tiles.pairs(i / kSsdRows, i % kSsdRows) += pairs[i];
    add_head<T>(args, chunk, head, part, steps, tiles, grad_c, grad_b);
  }
  __syncthreads();
  const int64_t column = args.group_column(first) + part;
  load_token_rows<T>(tiles.c, args.c, place, column, args.state_dim - part, kSsdPart);
  load_token_rows<T>(tiles.b, args.b, place, column, args.state_dim - part, kSsdPart);
  __syncthreads();
  warp_matmul<kExactOperands<T>>(
      grad_c, kSsdRows, [&](int i, int l) { return tiles.pairs(at.row + i, l); },
      [&](int l, int j) { return tiles.b(l, at.half * 32 + j); });
  warp_matmul<kExactOperands<T>>(
      grad_b, kSsdRows, [&](int i, int l) { return tiles.pairs(l, at.row + i); },
      [&](int l, int j) { return tiles.c(l, at.half * 32 + j); });
  const auto write = [&](const SsdRows& to, WarpSums<1, 4>& sums) {
    sums.each([&](int i, int j, float value) {
      const int row = at.row + i, of_part = at.half * 32 + j;
      if (row < place.tokens && part + of_part < args.state_dim)
        *to.at<T>(place.row + row, column + of_part) = narrow<T>(value);
    });
  };
  write(args.grad_c, grad_c);
  write(args.grad_b, grad_b);
}

}  // namespace

void launch_ssd_gradient(const SsdKernelArgs& args, DType dtype, cudaStream_t stream) {
  const dim3 grid(grid_size(int64_t{args.chunks} * args.heads));
  visit_elements(dtype, [&](auto element) {
    launch_tiles(ssd_gradient_kernel<decltype(element)>, grid, kGradientFloats, stream, args);
  });
}

void launch_ssd_group_gradient(const SsdKernelArgs& args, DType dtype, cudaStream_t stream) {
  const dim3 grid(grid_size(args.chunks), grid_size(args.heads / args.group),
                  grid_size(ceil_div(args.state_dim, kSsdPart)));
  visit_elements(dtype, [&](auto element) {
    launch_tiles(ssd_group_gradient_kernel<decltype(element)>, grid, kGroupFloats, stream, args);
  });
}

}  // namespace megatrain
