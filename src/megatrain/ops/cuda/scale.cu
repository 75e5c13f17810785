// Learned factors: one of a whole activation, and one of each expert.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;

// One block per row.
template <class T, int kVec>
__global__ void scale_all_kernel(const T* x, int64_t x_stride, const T* factor, float times, T* out, int64_t out_stride,
                                 int64_t cols) {
  const float by = times * (factor ? widen(*factor) : 1);
  for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec) {
    float a[kVec];
    load<T, kVec>(x + blockIdx.x * x_stride + c, a);
#pragma unroll
    for (int j = 0; j < kVec; ++j) a[j] *= by;
    store<T, kVec>(out + blockIdx.x * out_stride + c, a);
  }
}

template <class T>
__global__ void scale_choices_kernel(const int32_t* experts, const float* shares, int64_t pairs, const T* factors,
                                     float* weights) {
  const int64_t pair = static_cast<int64_t>(blockIdx.x) * kMostThreads + threadIdx.x;
  if (pair < pairs) weights[pair] = shares[pair] * widen(factors[experts[pair]]);
}

// One block per expert. Threads take its rows in turns, so the sum has a fixed tree.
template <class T>
__global__ void scale_choices_backward_kernel(const int32_t* begin, const int32_t* pair_of_row, const float* shares,
                                              const T* factors, float* grad_weights, float* grad_factors,
                                              bool accumulate) {
  __shared__ float shared[32];
  const int64_t expert = blockIdx.x;
  const float factor = widen(factors[expert]);
  float sum = 0;
  for (int64_t row = begin[expert] + threadIdx.x; row < begin[expert + 1]; row += blockDim.x) {
    const int32_t pair = pair_of_row[row];
    const float grad = grad_weights[pair];
    sum += grad * shares[pair];
    grad_weights[pair] = grad * factor;
  }
  sum = block_sum(sum, shared);
  if (grad_factors && threadIdx.x == 0) grad_factors[expert] = accumulate ? grad_factors[expert] + sum : sum;
}

}  // namespace

void launch(const ScaleAll& args, cudaStream_t stream) {
  if (args.x.rows == 0) return;
  ensure(args.x.rows == args.out.rows && args.x.cols == args.out.cols && args.factor.cols <= 1,
         "scaling keeps the shape and has one factor");
  ensure(args.x.dtype == args.out.dtype && (args.factor.empty() || args.x.dtype == args.factor.dtype),
         "scaling has one dtype");
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      scale_all_kernel<T, kVec>
          <<<grid_size(args.x.rows), row_threads(ceil_div(args.x.cols, kVec), kMostThreads), 0, stream>>>(
              args.x.as<T>(), args.x.row_stride, args.factor.empty() ? nullptr : args.factor.as<T>(), args.times,
              args.out.as<T>(), args.out.row_stride, args.x.cols);
    };
    packs(args.x, kPack<T>) && packs(args.out, kPack<T>) ? run.template operator()<kPack<T>>()
                                                         : run.template operator()<1>();
  });
  check_launch();
}

void launch(const ScaleChoices& args, cudaStream_t stream) {
  if (args.pairs == 0) return;
  visit_elements(args.factors.dtype, [&](auto element) {
    using T = decltype(element);
    scale_choices_kernel<T><<<grid_size(ceil_div(args.pairs, kMostThreads)), kMostThreads, 0, stream>>>(
        args.experts, args.shares, args.pairs, args.factors.as<T>(), args.weights);
  });
  check_launch();
}

void launch(const ScaleChoicesBackward& args, cudaStream_t stream) {
  ensure(args.grad_factors.empty() || args.grad_factors.dtype == DType::f32, "gradients of factors are fp32");
  visit_elements(args.factors.dtype, [&](auto element) {
    using T = decltype(element);
    scale_choices_backward_kernel<T><<<grid_size(args.factors.cols), kMostThreads, 0, stream>>>(
        args.begin, args.pair_of_row, args.shares, args.factors.as<T>(), args.grad_weights,
        args.grad_factors.as<float>(), args.accumulate);
  });
  check_launch();
}

}  // namespace megatrain
