// Norms: a block has kRows rows, which share what it reads of A. Columns are scaled by one block per row.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;
constexpr int kRows = 4;

template <class T>
__global__ void factors_kernel(const T* weight, int64_t rows, int64_t cols, const T* a, const T* b, int64_t rank,
                               float scale, const T* magnitude, float* factors, float* inv_norms) {
  __shared__ float shared[32];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  int64_t row[kRows];  // the last one again where there are fewer
#pragma unroll
  for (int j = 0; j < kRows; ++j) row[j] = first + j < rows ? first + j : rows - 1;
  float squares[kRows] = {};
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    float delta[kRows] = {};
    for (int64_t r = 0; r < rank; ++r) {
      const float from_a = widen(a[r * cols + c]);
#pragma unroll
      for (int j = 0; j < kRows; ++j) delta[j] += widen(b[row[j] * rank + r]) * from_a;
    }
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const float sum = widen(weight[row[j] * cols + c]) + scale * delta[j];
      squares[j] += sum * sum;
    }
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const float norm = sqrtf(block_sum(squares[j], shared));
    if (threadIdx.x != 0 || first + j >= rows) continue;
    factors[first + j] = norm > 0 ? widen(magnitude[first + j]) / norm : 0.0f;
    if (inv_norms) inv_norms[first + j] = norm > 0 ? 1.0f / norm : 0.0f;
  }
}

struct Rows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row) const {
    return static_cast<T*>(data) + row * stride;
  }
};
Rows rows_of(const View& view) { return {view.data, view.row_stride}; }

template <class T, int kVec>
__device__ void add(const T* from, float (&value)[kVec]) {
  float more[kVec];
  load<T, kVec>(from, more);
#pragma unroll
  for (int j = 0; j < kVec; ++j) value[j] += more[j];
}

template <class T, int kVec>
__global__ void scale_kernel(Rows x, const float* factors, float offset, Rows times, const T* bias, Rows residual,
                             Rows out, int64_t cols) {
  const int64_t row = blockIdx.x;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += static_cast<int64_t>(blockDim.x) * kVec) {
    float value[kVec], factor[kVec];
    load<T, kVec>(x.at<T>(row) + c, value);
    load<float, kVec>(factors + c, factor);
#pragma unroll
    for (int j = 0; j < kVec; ++j) value[j] *= factor[j] + offset;
    if (times.data) {
      float more[kVec];
      load<T, kVec>(times.at<T>(row) + c, more);
#pragma unroll
      for (int j = 0; j < kVec; ++j) value[j] *= more[j];
    }
    if (bias) add<T, kVec>(bias + c, value);
    if (residual.data) add<T, kVec>(residual.at<T>(row) + c, value);
    store<T, kVec>(out.at<T>(row) + c, value);
  }
}

}  // namespace

void launch(const DoraFactors& args, cudaStream_t stream) {
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  ensure(args.a.cols == cols && args.b.rows == rows && args.b.cols == args.a.rows && args.magnitude.cols == rows &&
             args.factors.cols == rows && args.factors.dtype == DType::f32,
         "DoRA's factors are (N), of weights (N, K) with (r, K) and (N, r) beside them");
  ensure(args.weight.contiguous() && args.a.contiguous() && args.b.contiguous() && args.a.dtype == args.weight.dtype &&
             args.b.dtype == args.weight.dtype && args.magnitude.dtype == args.weight.dtype,
         "DoRA's weights are contiguous and of one dtype");
  visit_elements(args.weight.dtype, [&](auto element) {
    using T = decltype(element);
    factors_kernel<T><<<grid_size(ceil_div(rows, kRows)), row_threads(cols, kMostThreads), 0, stream>>>(
        args.weight.as<T>(), rows, cols, args.a.as<T>(), args.b.as<T>(), args.a.rows, args.scale,
        args.magnitude.as<T>(), args.factors.as<float>(), args.inv_norms.as<float>());
  });
  check_launch();
}

void launch(const ScaleColumns& args, cudaStream_t stream) {
  if (args.x.rows == 0) return;
  ensure(args.x.rows == args.out.rows && args.x.cols == args.out.cols && args.x.dtype == args.out.dtype &&
             args.factors.cols == args.x.cols && args.factors.dtype == DType::f32,
         "scaling columns keeps the shape, with a factor in fp32 for each");
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const auto enqueue = [&]<int kVec>() {
      scale_kernel<T, kVec>
          <<<grid_size(args.x.rows), row_threads(ceil_div(args.x.cols, kVec), kMostThreads), 0, stream>>>(
              rows_of(args.x), args.factors.as<float>(), args.offset, rows_of(args.times), args.bias.as<T>(),
              rows_of(args.residual), rows_of(args.out), args.x.cols);
    };
    const bool packed = packs(args.x, kPack<T>) && packs(args.factors, kPack<T>) && packs(args.times, kPack<T>) &&
                        packs(args.bias, kPack<T>) && packs(args.residual, kPack<T>) && packs(args.out, kPack<T>);
    packed ? enqueue.template operator()<kPack<T>>() : enqueue.template operator()<1>();
  });
  check_launch();
}

}  // namespace megatrain
