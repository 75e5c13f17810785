// The recurrence for new tokens, in generation. A block has kColumns columns of one head's state in registers: warp p
// has rows p, p + kWarps, …, a lane one column of them. It walks over the new tokens of one sequence. A block is
// launched for every token, and only those of a sequence's first new token work.
#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/ops/cuda/ssd/launch.h"

namespace megatrain {

namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 32;
constexpr int kStateRows = static_cast<int>(kMostSsdDim) / kWarps;

struct CachedRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(data) + row * stride + column;
  }
};
CachedRows cached_rows(const View& view) { return {view.data, view.row_stride}; }

struct CachedArgs {
  SsdShape shape;
  const int32_t* sequences;
  const int32_t* positions;
  CachedRows x, b, c, step, g, out;
  float* state;
};

// grid (tokens, heads, slices of columns)
template <class T, class W>
__global__ void __launch_bounds__(kWarps * 32) ssd_cached_kernel(CachedArgs args, const W* skips) {
  __shared__ float b[kMostSsdDim], c[kMostSsdDim];
  __shared__ float parts[kWarps][kColumns];
  const SsdShape& shape = args.shape;
  int64_t token = blockIdx.x;
  const int32_t sequence = args.sequences[token];
  if (token > 0 && args.sequences[token - 1] == sequence) return;
  const int64_t head = blockIdx.y;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int states = static_cast<int>(shape.state_dim), width = static_cast<int>(shape.head_dim);
  const int64_t group_column = head / (shape.heads / shape.groups) * states;
  const int column = static_cast<int>(blockIdx.z) * kColumns + lane;
  const bool exists = column < width;
  const float skip = widen(skips[head]);
  float* const kept_state = args.state + (sequence * shape.heads + head) * states * width + column;
  float state[kStateRows];
  const bool begins = args.positions[token] == 0;
#pragma unroll
  for (int r = 0; r < kStateRows; ++r) {
    const int row = warp + kWarps * r;
    state[r] = !begins && exists && row < states ? kept_state[static_cast<int64_t>(row) * width] : 0.0f;
  }
  for (; token < shape.tokens && args.sequences[token] == sequence; ++token) {
    __syncthreads();
    for (int i = threadIdx.x; i < states; i += kWarps * 32) {
      b[i] = widen(*args.b.at<const T>(token, group_column + i));
      c[i] = widen(*args.c.at<const T>(token, group_column + i));
    }
    const float kept = expf(*args.g.at<const float>(token, head)), step = *args.step.at<const float>(token, head);
    const float x = exists ? widen(*args.x.at<const T>(token, head * width + column)) : 0.0f;
    __syncthreads();
    float out = 0;
#pragma unroll
    for (int r = 0; r < kStateRows; ++r) {
      const int row = warp + kWarps * r;
      if (row >= states) continue;
      state[r] = kept * state[r] + step * b[row] * x;
      out += state[r] * c[row];
    }
    parts[warp][lane] = out;
    __syncthreads();
    if (warp != 0 || !exists) continue;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += parts[i][lane];
    *args.out.at<T>(token, head * width + column) = narrow<T>(sum + skip * x);
  }
  if (!exists) return;
#pragma unroll
  for (int r = 0; r < kStateRows; ++r) {
    const int row = warp + kWarps * r;
    if (row < states) kept_state[static_cast<int64_t>(row) * width] = state[r];
  }
}

}  // namespace

void launch(const SsdCached& args, cudaStream_t stream) {
  const SsdShape& shape = args.shape;
  if (shape.tokens == 0) return;
  ensure(shape.groups > 0 && shape.heads % shape.groups == 0, "heads share groups evenly");
  ensure(shape.state_dim <= kMostSsdDim, "a head's state has at most 256 rows");
  ensure(args.state.dtype == DType::f32 && args.state.contiguous(), "states are contiguous fp32");
  ensure(args.step.dtype == DType::f32 && args.g.dtype == DType::f32, "steps and decays are fp32");
  ensure(args.b.dtype == args.x.dtype && args.c.dtype == args.x.dtype && args.out.dtype == args.x.dtype,
         "the recurrence's tensors share a dtype");
  const dim3 grid(grid_size(shape.tokens), grid_size(shape.heads), grid_size(ceil_div(shape.head_dim, kColumns)));
  const CachedArgs call{shape,
                        args.sequences,
                        args.positions,
                        cached_rows(args.x),
                        cached_rows(args.b),
                        cached_rows(args.c),
                        cached_rows(args.step),
                        cached_rows(args.g),
                        cached_rows(args.out),
                        args.state.as<float>()};
  visit_elements(args.x.dtype, [&](auto element) {
    visit_elements(args.skip.dtype, [&](auto of_skip) {
      using W = decltype(of_skip);
      ssd_cached_kernel<decltype(element), W><<<grid, kWarps * 32, 0, stream>>>(call, args.skip.as<W>());
    });
  });
  check_launch();
}

}  // namespace megatrain
