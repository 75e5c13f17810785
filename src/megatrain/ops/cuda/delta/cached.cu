// The delta rule's recurrence for new tokens, in generation. A block has kColumns columns of one value head's state in
// registers: warp p has rows p, p + kWarps, …, a lane one column of them. It walks over the new tokens of one sequence.
// A block is launched for every token, and only those of a sequence's first new token work.
#include "megatrain/ops/cuda/delta/launch.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 32;
constexpr int kRows = static_cast<int>(kMostDeltaDim) / kWarps;

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
  DeltaRuleShape shape;
  const int32_t* sequences;
  const int32_t* positions;
  CachedRows q, k, v, g, beta, out;
  float* state;
};

// Row `token` of one head, normalised to `scale`, by one warp.
template <class T>
__device__ void load_unit(const CachedRows& from, int64_t token, int64_t column, int size, float scale, float* to) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
  for (int i = lane; i < size; i += 32) {
    const float x = widen(*from.at<const T>(token, column + i));
    to[i] = x;
    squares += x * x;
  }
  const float factor = scale / sqrtf(warp_sum(squares) + kDeltaNormEpsilon);
  for (int i = lane; i < size; i += 32) to[i] *= factor;
}

// The sum of all warps' values for a lane's column, in order.
__device__ float sum_over_warps(float x, float (&parts)[kWarps][kColumns]) {
  parts[threadIdx.x / 32][threadIdx.x % 32] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp][threadIdx.x % 32];
  return sum;
}

// grid (tokens, value heads, slices of columns)
template <class T>
__global__ void __launch_bounds__(kWarps * 32) delta_cached_kernel(CachedArgs args) {
  __shared__ float q[kMostDeltaDim], k[kMostDeltaDim];
  __shared__ float read_parts[kWarps][kColumns], out_parts[kWarps][kColumns];
  const DeltaRuleShape& shape = args.shape;
  int64_t token = blockIdx.x;
  const int32_t sequence = args.sequences[token];
  if (token > 0 && args.sequences[token - 1] == sequence) return;
  const int64_t head = blockIdx.y, key_head = head / (shape.value_heads / shape.key_heads);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int dk = static_cast<int>(shape.key_dim), dv = static_cast<int>(shape.value_dim);
  const int column = static_cast<int>(blockIdx.z) * kColumns + lane;
  const bool exists = column < dv;
  const float scale = 1.0f / sqrtf(static_cast<float>(dk));
  float* const kept_state = args.state + (sequence * shape.value_heads + head) * dk * dv + column;
  float state[kRows];
  const bool begins = args.positions[token] == 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = warp + kWarps * r;
    state[r] = !begins && exists && row < dk ? kept_state[static_cast<int64_t>(row) * dv] : 0.0f;
  }
  for (; token < shape.tokens && args.sequences[token] == sequence; ++token) {
    __syncthreads();
    if (warp == 0) load_unit<T>(args.k, token, key_head * dk, dk, 1.0f, k);
    if (warp == 1) load_unit<T>(args.q, token, key_head * dk, dk, scale, q);
    const float kept = expf(*args.g.at<const float>(token, head)), beta = *args.beta.at<const float>(token, head);
    const float value = exists ? widen(*args.v.at<const T>(token, head * dv + column)) : 0.0f;
    __syncthreads();
    float read = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp + kWarps * r;
      if (row >= dk) continue;
      state[r] *= kept;
      read += state[r] * k[row];
    }
    const float written = beta * (value - sum_over_warps(read, read_parts));
    float out = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp + kWarps * r;
      if (row >= dk) continue;
      state[r] += k[row] * written;
      out += state[r] * q[row];
    }
    out = sum_over_warps(out, out_parts);
    if (warp == 0 && exists) *args.out.at<T>(token, head * dv + column) = narrow<T>(out);
  }
  if (!exists) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = warp + kWarps * r;
    if (row < dk) kept_state[static_cast<int64_t>(row) * dv] = state[r];
  }
}

}  // namespace

void launch(const DeltaRuleCached& args, cudaStream_t stream) {
  const DeltaRuleShape& shape = args.shape;
  if (shape.tokens == 0) return;
  ensure(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0, "value heads share key heads evenly");
  ensure(shape.key_dim <= kMostDeltaDim && shape.value_dim <= kMostDeltaDim, "a delta head has at most 256 elements");
  ensure(args.state.dtype == DType::f32 && args.state.contiguous(), "states are contiguous fp32");
  ensure(args.g.dtype == DType::f32 && args.beta.dtype == DType::f32, "gates are fp32");
  ensure(args.k.dtype == args.q.dtype && args.v.dtype == args.q.dtype && args.out.dtype == args.q.dtype,
         "the delta rule's tensors share a dtype");
  const dim3 grid(grid_size(shape.tokens), grid_size(shape.value_heads),
                  grid_size(ceil_div(shape.value_dim, kColumns)));
  visit_elements(args.q.dtype, [&](auto element) {
    delta_cached_kernel<decltype(element)><<<grid, kWarps * 32, 0, stream>>>(
        {shape, args.sequences, args.positions, cached_rows(args.q), cached_rows(args.k), cached_rows(args.v),
         cached_rows(args.g), cached_rows(args.beta), cached_rows(args.out), args.state.as<float>()});
  });
  check_launch();
}

}  // namespace megatrain
