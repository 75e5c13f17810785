#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

// One block per token.
template <class T, int kVec>
__global__ void gather_kernel(const T* table, int64_t table_stride, const int32_t* index, T* out, int64_t out_stride,
                              int64_t cols) {
  const int64_t token = blockIdx.x;
  if (index[token] < 0) return;
  const T* from = table + index[token] * table_stride;
  T* to = out + token * out_stride;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec) {
    *reinterpret_cast<Pack<T, kVec>*>(to + c) = *reinterpret_cast<const Pack<T, kVec>*>(from + c);
  }
}

template <class T, int kVec>
__global__ void scaled_gather_kernel(const T* table, int64_t table_stride, const int32_t* index, float scale, T* out,
                                     int64_t out_stride, int64_t cols) {
  if (index[blockIdx.x] < 0) return;
  const T* from = table + index[blockIdx.x] * table_stride;
  T* to = out + blockIdx.x * out_stride;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec) {
    float x[kVec];
    load<T, kVec>(from + c, x);
#pragma unroll
    for (int j = 0; j < kVec; ++j) x[j] *= scale;
    store<T, kVec>(to + c, x);
  }
}

// One thread per segment and kVec columns. Rows are loaded kAhead at a time and added one by one.
template <class T, int kVec>
__global__ void segment_sum_kernel(const T* grad_out, int64_t in_stride, const int32_t* order, const int32_t* begin,
                                   const int32_t* row, float scale, float* grad, int64_t grad_stride, int64_t cols) {
  constexpr int kAhead = 4;
  const int64_t segment = blockIdx.x;
  const int64_t c = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kVec;
  if (c >= cols) return;
  float* to = grad + row[segment] * grad_stride + c;
  float sum[kVec];
  load<float, kVec>(to, sum);
  const int32_t end = begin[segment + 1];
  for (int32_t i = begin[segment]; i < end; i += kAhead) {
    float x[kAhead][kVec];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (i + a < end) load<T, kVec>(grad_out + order[i + a] * in_stride + c, x[a]);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (i + a < end) {
#pragma unroll
        for (int j = 0; j < kVec; ++j) sum[j] += x[a][j] * scale;
      }
    }
  }
  store<float, kVec>(to, sum);
}

}  // namespace

void launch(const EmbeddingForward& args, cudaStream_t stream) {
  if (args.out.rows == 0) return;
  ensure(args.table.dtype == args.out.dtype && args.table.cols == args.out.cols,
         "embedding rows keep their dtype and length");
  visit_elements(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      const unsigned threads = row_threads(args.out.cols / kVec, 256);
      if (args.scale == 1) {
        gather_kernel<T, kVec>
            <<<grid_size(args.out.rows), threads, 0, stream>>>(args.table.as<T>(), args.table.row_stride, args.index,
                                                               args.out.as<T>(), args.out.row_stride, args.out.cols);
      } else {
        scaled_gather_kernel<T, kVec><<<grid_size(args.out.rows), threads, 0, stream>>>(
            args.table.as<T>(), args.table.row_stride, args.index, args.scale, args.out.as<T>(), args.out.row_stride,
            args.out.cols);
      }
    };
    if (packs(args.table, kPack<T>) && packs(args.out, kPack<T>)) {
      run.template operator()<kPack<T>>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

void launch(const EmbeddingBackward& args, cudaStream_t stream) {
  if (args.segments == 0) return;
  ensure(args.grad.dtype == DType::f32, "embedding gradients are fp32");
  visit_elements(args.grad_out.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      const int64_t items = ceil_div(args.grad.cols, kVec);
      const unsigned threads = row_threads(items, 128);
      const dim3 grid(grid_size(args.segments), grid_size(ceil_div(items, threads)));
      segment_sum_kernel<T, kVec><<<grid, threads, 0, stream>>>(
          args.grad_out.as<T>(), args.grad_out.row_stride, args.order, args.begin, args.row, args.scale,
          args.grad.as<float>(), args.grad.row_stride, args.grad.cols);
    };
    if (packs(args.grad_out, kPack<T>) && packs(args.grad, kPack<T>)) {
      run.template operator()<kPack<T>>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

}  // namespace megatrain
