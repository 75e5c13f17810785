#include <cfloat>

#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kThreads = 512;

__device__ inline float capped(float x, float cap) { return cap == 0 ? x : cap * tanhf(x / cap); }

// Logits as the loss sees them.
template <class T, int kVec>
__device__ void load_capped(const T* at, float cap, float (&out)[kVec]) {
  load<T, kVec>(at, out);
#pragma unroll
  for (int j = 0; j < kVec; ++j) out[j] = capped(out[j], cap);
}

// One block per row. A thread keeps its sum of exponentials relative to the largest logit that it has seen.
template <class T, int kVec>
__global__ void cross_entropy_kernel(T* logits, int64_t row_stride, int64_t vocabulary, const int32_t* labels,
                                     float scale, const float* token_scales, float cap, float* loss, int32_t* correct,
                                     bool backward) {
  __shared__ float shared[32];
  const int64_t row = blockIdx.x;
  T* x = logits + row * row_stride;
  const int64_t label = labels[row];
  if (label == kIgnoreLabel) {
    if (threadIdx.x == 0) {
      loss[row] = 0;
      correct[row] = 0;
    }
    if (backward) {
      const float zeros[kVec] = {};
      for (int64_t i = threadIdx.x * kVec; i < vocabulary; i += kThreads * kVec) store<T, kVec>(x + i, zeros);
    }
    return;
  }

  const float target = capped(widen(x[label]), cap);
  float most = -FLT_MAX, sum = 0;
  bool beaten = false;
  for (int64_t i = threadIdx.x * kVec; i < vocabulary; i += kThreads * kVec) {
    float v[kVec];
    load_capped<T, kVec>(x + i, cap, v);
    float top = v[0];
#pragma unroll
    for (int j = 1; j < kVec; ++j) top = fmaxf(top, v[j]);
    if (top > most) {
      sum *= expf(most - top);
      most = top;
    }
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      sum += expf(v[j] - most);
      beaten = beaten || v[j] > target || (v[j] == target && i + j < label);
    }
  }
  const float largest = block_max(most, shared);
  sum = block_sum(sum * expf(most - largest), shared);
  const float lse = largest + logf(sum);
  const int lost = __syncthreads_or(beaten);
  if (threadIdx.x == 0) {
    loss[row] = lse - target;
    correct[row] = lost ? 0 : 1;
  }
  if (!backward) return;
  if (token_scales) scale *= token_scales[row];
  for (int64_t i = threadIdx.x * kVec; i < vocabulary; i += kThreads * kVec) {
    float v[kVec];
    load_capped<T, kVec>(x + i, cap, v);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const float slope = cap == 0 ? 1.0f : 1.0f - (v[j] / cap) * (v[j] / cap);
      v[j] = (expf(v[j] - lse) - (i + j == label ? 1.0f : 0.0f)) * scale * slope;
    }
    store<T, kVec>(x + i, v);
  }
}

// One block per row.
__global__ void cap_kernel(float* logits, int64_t row_stride, int64_t vocabulary, float cap) {
  float* x = logits + blockIdx.x * row_stride;
  for (int64_t i = threadIdx.x; i < vocabulary; i += kThreads) x[i] = capped(x[i], cap);
}

}  // namespace

void launch(const CrossEntropy& args, cudaStream_t stream) {
  if (args.logits.rows == 0) return;
  visit_elements(args.logits.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      cross_entropy_kernel<T, kVec><<<grid_size(args.logits.rows), kThreads, 0, stream>>>(
          args.logits.as<T>(), args.logits.row_stride, args.logits.cols, args.labels, args.scale, args.token_scales,
          args.cap, args.loss, args.correct, args.backward);
    };
    if (packs(args.logits, kPack<T>)) {
      run.template operator()<kPack<T>>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

void launch(const CapLogits& args, cudaStream_t stream) {
  ensure(args.logits.dtype == DType::f32 && args.cap > 0, "a cap is positive and applies to fp32 logits");
  if (args.logits.rows == 0) return;
  cap_kernel<<<grid_size(args.logits.rows), kThreads, 0, stream>>>(args.logits.as<float>(), args.logits.row_stride,
                                                                   args.logits.cols, args.cap);
  check_launch();
}

}  // namespace megatrain
