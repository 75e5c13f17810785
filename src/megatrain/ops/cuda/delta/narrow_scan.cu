// scan.cu in bf16 with heads of 128. The slice of the state stays in registers in fp32; shared memory has it in bf16
// for the matmuls. A tile of keys is copied while the one before it is multiplied. A slice has 64 columns if there are
// blocks enough for the GPU, because each slice reads all keys, else 32. An element's sums are the same in both.
#include "megatrain/ops/cuda/delta/narrow.cuh"
#include "megatrain/ops/cuda/delta/narrow_kernels.h"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int kWideSlice = 64;

// A warp has 16 rows of the state, and of D 16 rows and half of the columns; or of their gradients.
template <int kColumns>
struct Owned {
  int state_row = threadIdx.x / 32 * 16;
  int row = threadIdx.x / 32 % 4 * 16, column = threadIdx.x / 128 * (kColumns / 2);
};
template <int kColumns>
using StateSums = WarpSums<1, kColumns / 8>;
template <int kColumns>
using ValueTile = WarpSums<1, kColumns / 16>;

// The lane's elements of a slice (128, kColumns) of a state in `slot`, which has all heads' states.
template <int C>
__device__ void load_state(WarpSums<1, C>& state, const float* slot, int head, int row0, int column) {
  if (!slot) return;
  const float* const from = slot + static_cast<int64_t>(head) * NarrowScratch::kState + row0 * kNarrowDim + column;
  each_pair(state, [&](int i, int j, float& first, float& second) {
    const float2 pair = *reinterpret_cast<const float2*>(from + i * kNarrowDim + j);
    first = pair.x;
    second = pair.y;
  });
}
template <int C>
__device__ void save_state(WarpSums<1, C>& state, float* slot, int head, int row0, int column) {
  float* const to = slot + static_cast<int64_t>(head) * NarrowScratch::kState + row0 * kNarrowDim + column;
  each_pair(state, [&](int i, int j, float first, float second) {
    *reinterpret_cast<float2*>(to + i * kNarrowDim + j) = float2{first, second};
  });
}
template <int C>
__device__ void show_state(WarpSums<1, C>& state, const NarrowTile& tile, int row0) {
  each_pair(state, [&](int i, int j, float first, float second) { tile.set_pair(row0 + i, j, first, second); });
}

// What a lane needs of a chunk beside its tiles, loaded a chunk ahead.
template <int kColumns>
struct Ahead {
  ValueTile<kColumns> values;  // U, or P^T dO
  float written[2];            // of the lane's rows
  float kept;

  __device__ void load(const float* from, const ChunkFactors& factors, const Owned<kColumns>& owned, int column) {
    const float* const first = from + owned.row * kNarrowDim + column + owned.column;
    each_pair(values, [&](int i, int j, float& x, float& y) {
      const float2 pair = *reinterpret_cast<const float2*>(first + i * kNarrowDim + j);
      x = pair.x;
      y = pair.y;
    });
#pragma unroll
    for (int half = 0; half < 2; ++half) written[half] = factors.written[owned.row + threadIdx.x % 32 / 4 + 8 * half];
    kept = factors.kept;
  }
};

template <int kColumns>
struct ScanTiles {
  NarrowTile w, k, state, d;

  __device__ explicit ScanTiles(void* memory) {
    NarrowMemory shared(memory);
    w = shared.tile(kChunkRows, kNarrowDim);
    k = shared.tile(kChunkRows, kNarrowDim);
    state = shared.tile(kNarrowDim, kColumns);
    d = shared.tile(kChunkRows, kColumns);
  }
};
template <int kColumns>
constexpr int64_t kScanBytes = 2 * narrow_bytes(kChunkRows, kNarrowDim) +
                               narrow_bytes(kNarrowDim + kChunkRows, kColumns);

// grid (chunks, heads, slices)
template <int kColumns>
__global__ void __launch_bounds__(kThreads, kColumns == kSlice ? 4 : 2)
    narrow_scan_kernel(const __grid_constant__ DeltaKernelArgs args, bool keep) {
  extern __shared__ __align__(16) float memory[];
  int chunk = blockIdx.x;
  const int head = blockIdx.y, column = blockIdx.z * kColumns;
  if (chunk > 0 && !args.places[chunk].first) return;
  const ScanTiles<kColumns> tiles(memory);
  const Owned<kColumns> owned;
  StateSums<kColumns> state;
  load_state(state, args.places[chunk].first ? nullptr : args.before, head, owned.state_row, column);
  show_state(state, tiles.state, owned.state_row);
  Ahead<kColumns> ahead;
  const auto begin = [&] {
    const NarrowScratch scratch{args, chunk, head};
    copy_tile<kNarrowDim>(tiles.w, scratch.w(), kNarrowDim, kChunkRows, kChunkRows);
    ahead.load(scratch.u(), scratch.factors(), owned, column);
  };
  for (begin();;) {
    const ChunkPlace& place = args.places[chunk];
    const NarrowScratch scratch{args, chunk, head};
    await_tiles();  // W and the state
    copy_tile<kNarrowDim>(tiles.k, narrow_keys(args, args.k, place, head), args.k.stride, kChunkRows, place.tokens);
    if (keep) store_tile<kColumns>(tiles.state, scratch.state() + column, kNarrowDim, kNarrowDim);
    ValueTile<kColumns> read;
    narrow_matmul(read, 0, kNarrowDim, Left{tiles.w, owned.row}, Right{tiles.state, owned.column});
    Bf16* const to_d = scratch.d() + owned.row * kNarrowDim + column + owned.column;
#pragma unroll
    for (int c = 0; c < kColumns / 16; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = threadIdx.x % 32 / 4 + 8 * half, j = 8 * c + threadIdx.x % 4 * 2;
        const float first = ahead.values.v[0][c][2 * half] - read.v[0][c][2 * half];
        const float second = ahead.values.v[0][c][2 * half + 1] - read.v[0][c][2 * half + 1];
        if (keep) *reinterpret_cast<uint32_t*>(to_d + i * kNarrowDim + j) = pack_pair(first, second);
        tiles.d.set_pair(owned.row + i, owned.column + j, ahead.written[half] * first, ahead.written[half] * second);
      }
    }
    each_pair(state, [&](int, int, float& first, float& second) {
      first *= ahead.kept;
      second *= ahead.kept;
    });
    await_tiles();  // K and D
    const bool ends = place.last || chunk + 1 == args.chunks;
    if (!ends) {
      ++chunk;
      begin();
    }
    narrow_matmul(state, 0, kChunkRows, LeftTransposed{tiles.k, owned.state_row}, Right{tiles.d, 0});
    if (ends) break;
    show_state(state, tiles.state, owned.state_row);
  }
  if (!args.places[chunk].last && args.after) save_state(state, args.after, head, owned.state_row, column);
}

template <int kColumns>
struct BackTiles {
  NarrowTile k, q, w, grad_state, grad_out, grad_d;

  __device__ explicit BackTiles(void* memory) {
    NarrowMemory shared(memory);
    for (NarrowTile* tile : {&k, &q, &w}) *tile = shared.tile(kChunkRows, kNarrowDim);
    grad_state = shared.tile(kNarrowDim, kColumns);
    grad_out = shared.tile(kChunkRows, kColumns);
    grad_d = shared.tile(kChunkRows, kColumns);
  }
};
template <int kColumns>
constexpr int64_t kBackBytes = 3 * narrow_bytes(kChunkRows, kNarrowDim) +
                               narrow_bytes(kNarrowDim + 2 * kChunkRows, kColumns);

// A slice of the gradient of out times exp(G) and q's factor: a thread has packs of a row.
template <int kColumns>
struct AheadOut {
  static constexpr int kPacks = kColumns / 32;
  static_assert(kThreads == 4 * kChunkRows);
  float x[kPacks][8];
  float read;

  __device__ static int place(int pack) { return (4 * pack + static_cast<int>(threadIdx.x) % 4) * 8; }
  __device__ void load(const DeltaKernelArgs& args, const ChunkPlace& chunk, const ChunkFactors& factors, int head,
                       int column) {
    const int row = threadIdx.x / 4;
    const Bf16* const from = narrow_values(args.grad_out, chunk, head) + row * args.grad_out.stride + column;
    read = factors.read[row];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int j = 0; j < 8; ++j) x[p][j] = 0;
      if (row < chunk.tokens) megatrain::load<Bf16, 8>(from + place(p), x[p]);
    }
  }
  __device__ void show(const NarrowTile& tile) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float scaled[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) scaled[j] = read * x[p][j];
      store<Bf16, 8>(tile.at(threadIdx.x / 4, place(p)), scaled);
    }
  }
};

// grid (chunks, heads, slices)
template <int kColumns>
__global__ void __launch_bounds__(kThreads, 2) narrow_scan_back_kernel(const __grid_constant__ DeltaKernelArgs args) {
  extern __shared__ __align__(16) float memory[];
  int chunk = blockIdx.x;
  const int head = blockIdx.y, column = blockIdx.z * kColumns;
  if (chunk + 1 < args.chunks && !args.places[chunk].last) return;
  const BackTiles<kColumns> tiles(memory);
  const Owned<kColumns> owned;
  StateSums<kColumns> grad_state;
  load_state(grad_state, args.places[chunk].last ? nullptr : args.before, head, owned.state_row, column);
  show_state(grad_state, tiles.grad_state, owned.state_row);
  Ahead<kColumns> ahead;
  AheadOut<kColumns> ahead_out;
  const auto begin = [&] {
    const NarrowScratch scratch{args, chunk, head};
    const ChunkPlace& place = args.places[chunk];
    copy_tile<kNarrowDim>(tiles.k, narrow_keys(args, args.k, place, head), args.k.stride, kChunkRows, place.tokens);
    ahead.load(scratch.grad_d_of_outputs(), scratch.factors(), owned, column);
    ahead_out.load(args, place, scratch.factors(), head, column);
  };
  for (begin();;) {
    const ChunkPlace& place = args.places[chunk];
    const NarrowScratch scratch{args, chunk, head};
    await_tiles();  // K and the gradient of the state
    copy_tile<kNarrowDim>(tiles.q, narrow_keys(args, args.q, place, head), args.q.stride, kChunkRows, place.tokens);
    copy_tile<kNarrowDim>(tiles.w, scratch.w(), kNarrowDim, kChunkRows, kChunkRows);
    store_tile<kColumns>(tiles.grad_state, scratch.grad_state() + column, kNarrowDim, kNarrowDim);
    ahead_out.show(tiles.grad_out);
    ValueTile<kColumns> moved;
    narrow_matmul(moved, 0, kNarrowDim, Left{tiles.k, owned.row}, Right{tiles.grad_state, owned.column});
    Bf16* const to_d = scratch.grad_d() + owned.row * kNarrowDim + column + owned.column;
#pragma unroll
    for (int c = 0; c < kColumns / 16; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = threadIdx.x % 32 / 4 + 8 * half, j = 8 * c + threadIdx.x % 4 * 2;
        const float first = ahead.values.v[0][c][2 * half] + ahead.written[half] * moved.v[0][c][2 * half];
        const float second = ahead.values.v[0][c][2 * half + 1] + ahead.written[half] * moved.v[0][c][2 * half + 1];
        *reinterpret_cast<uint32_t*>(to_d + i * kNarrowDim + j) = pack_pair(first, second);
        tiles.grad_d.set_pair(owned.row + i, owned.column + j, -first, -second);
      }
    }
    each_pair(grad_state, [&](int, int, float& first, float& second) {
      first *= ahead.kept;
      second *= ahead.kept;
    });
    await_tiles();  // Q, W and the gradients of D and of out
    const bool ends = place.first || chunk == 0;
    if (!ends) {
      --chunk;
      begin();
    }
    narrow_matmul(grad_state, 0, kChunkRows, LeftTransposed{tiles.q, owned.state_row}, Right{tiles.grad_out, 0});
    narrow_matmul(grad_state, 0, kChunkRows, LeftTransposed{tiles.w, owned.state_row}, Right{tiles.grad_d, 0});
    if (ends) break;
    show_state(grad_state, tiles.grad_state, owned.state_row);
  }
  if (!args.places[chunk].first && args.after) save_state(grad_state, args.after, head, owned.state_row, column);
}

// Whether slices of 64 columns give every multiprocessor a block.
bool fills_with_wide_slices(const DeltaKernelArgs& args) {
  static const int processors = [] {
    int device = 0, count = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
  }();
  int walks = 1;
  for (int chunk = 1; chunk < args.chunks; ++chunk) walks += args.places[chunk].first;
  return walks * args.heads * (kNarrowDim / kWideSlice) >= processors;
}

template <int kColumns>
void launch_scan(const DeltaKernelArgs& args, bool keep, cudaStream_t stream) {
  constexpr int64_t kBytes = kScanBytes<kColumns>;
  const dim3 grid(grid_size(args.chunks), grid_size(args.heads), kNarrowDim / kColumns);
  CUDA_CHECK(cudaFuncSetAttribute(narrow_scan_kernel<kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kBytes)));
  narrow_scan_kernel<kColumns><<<grid, kThreads, kBytes, stream>>>(args, keep);
  check_launch();
}

template <int kColumns>
void launch_scan_back(const DeltaKernelArgs& args, cudaStream_t stream) {
  constexpr int64_t kBytes = kBackBytes<kColumns>;
  const dim3 grid(grid_size(args.chunks), grid_size(args.heads), kNarrowDim / kColumns);
  CUDA_CHECK(cudaFuncSetAttribute(narrow_scan_back_kernel<kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kBytes)));
  narrow_scan_back_kernel<kColumns><<<grid, kThreads, kBytes, stream>>>(args);
  check_launch();
}

}  // namespace

void launch_narrow_scan(const DeltaKernelArgs& args, bool keep, cudaStream_t stream) {
  if (fills_with_wide_slices(args)) {
    launch_scan<kWideSlice>(args, keep, stream);
  } else {
    launch_scan<kSlice>(args, keep, stream);
  }
}

void launch_narrow_scan_back(const DeltaKernelArgs& args, cudaStream_t stream) {
  if (fills_with_wide_slices(args)) {
    launch_scan_back<kWideSlice>(args, stream);
  } else {
    launch_scan_back<kSlice>(args, stream);
  }
}

}  // namespace megatrain
