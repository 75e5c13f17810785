// One block per row.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;

__device__ float gate_factor(float gate) { return 1.0f / (1.0f + expf(-gate)); }

template <class T, int kVec>
__global__ void output_gate_kernel(const T* x, int64_t x_stride, const T* gate, int64_t gate_stride, T* out,
                                   int64_t out_stride, int64_t cols) {
  const int64_t row = blockIdx.x;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += static_cast<int64_t>(blockDim.x) * kVec) {
    float value[kVec], g[kVec];
    load<T, kVec>(x + row * x_stride + c, value);
    load<T, kVec>(gate + row * gate_stride + c, g);
#pragma unroll
    for (int j = 0; j < kVec; ++j) value[j] *= gate_factor(g[j]);
    store<T, kVec>(out + row * out_stride + c, value);
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
__global__ void output_gate_backward_kernel(Rows x, Rows gate, Rows grad_out, Rows grad_x, Rows grad_gate,
                                            int64_t cols) {
  const int64_t row = blockIdx.x;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += static_cast<int64_t>(blockDim.x) * kVec) {
    float value[kVec], g[kVec], grad[kVec];
    load<T, kVec>(x.at<T>(row) + c, value);
    load<T, kVec>(gate.at<T>(row) + c, g);
    load<T, kVec>(grad_out.at<T>(row) + c, grad);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const float s = gate_factor(g[j]);
      g[j] = grad[j] * value[j] * (s * (1.0f - s));
      grad[j] *= s;
    }
    store<T, kVec>(grad_gate.at<T>(row) + c, g);
    store<T, kVec>(grad_x.at<T>(row) + c, grad);
  }
}

}  // namespace

void launch(const OutputGateForward& args, cudaStream_t stream) {
  if (args.out.rows == 0) return;
  ensure(args.x.cols == args.out.cols && args.gate.cols == args.out.cols && args.x.dtype == args.out.dtype &&
             args.gate.dtype == args.out.dtype,
         "each output has a gate of its dtype");
  visit_elements(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const auto enqueue = [&]<int kVec>() {
      output_gate_kernel<T, kVec>
          <<<grid_size(args.out.rows), row_threads(ceil_div(args.out.cols, kVec), kMostThreads), 0, stream>>>(
              args.x.as<T>(), args.x.row_stride, args.gate.as<T>(), args.gate.row_stride, args.out.as<T>(),
              args.out.row_stride, args.out.cols);
    };
    const bool packed = packs(args.x, kPack<T>) && packs(args.gate, kPack<T>) && packs(args.out, kPack<T>);
    packed ? enqueue.template operator()<kPack<T>>() : enqueue.template operator()<1>();
  });
  check_launch();
}

void launch(const OutputGateBackward& args, cudaStream_t stream) {
  if (args.grad_out.rows == 0) return;
  ensure(args.x.cols == args.grad_out.cols && args.gate.cols == args.x.cols && args.grad_x.cols == args.x.cols &&
             args.grad_gate.cols == args.x.cols && args.x.dtype == args.grad_out.dtype &&
             args.gate.dtype == args.x.dtype && args.grad_x.dtype == args.x.dtype &&
             args.grad_gate.dtype == args.x.dtype,
         "each output has a gate of its dtype");
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    const auto enqueue = [&]<int kVec>() {
      output_gate_backward_kernel<T, kVec>
          <<<grid_size(args.x.rows), row_threads(ceil_div(args.x.cols, kVec), kMostThreads), 0, stream>>>(
              rows_of(args.x), rows_of(args.gate), rows_of(args.grad_out), rows_of(args.grad_x),
              rows_of(args.grad_gate), args.x.cols);
    };
    const bool packed = packs(args.x, kPack<T>) && packs(args.gate, kPack<T>) && packs(args.grad_out, kPack<T>) &&
                        packs(args.grad_x, kPack<T>) && packs(args.grad_gate, kPack<T>);
    packed ? enqueue.template operator()<kPack<T>>() : enqueue.template operator()<1>();
  });
  check_launch();
}

}  // namespace megatrain
