// One block per row.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;

// A gate's factor, and its slope.
struct Factor {
  float value, slope;
};

template <GateForm kForm>
__device__ Factor factor_of(float gate) {
  if constexpr (kForm == GateForm::plain) return {gate, 1.0f};
  const float s = 1.0f / (1.0f + expf(-gate));
  if constexpr (kForm == GateForm::silu) return {gate * s, s * (1.0f + gate * (1.0f - s))};
  return {s, s * (1.0f - s)};
}

template <class T, int kVec, GateForm kForm>
__global__ void output_gate_kernel(const T* x, int64_t x_stride, const T* gate, int64_t gate_stride, T* out,
                                   int64_t out_stride, int64_t cols) {
  const int64_t row = blockIdx.x;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += static_cast<int64_t>(blockDim.x) * kVec) {
    float value[kVec], g[kVec];
    load<T, kVec>(x + row * x_stride + c, value);
    load<T, kVec>(gate + row * gate_stride + c, g);
#pragma unroll
    for (int j = 0; j < kVec; ++j) value[j] *= factor_of<kForm>(g[j]).value;
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

template <class T, int kVec, GateForm kForm>
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
      const Factor factor = factor_of<kForm>(g[j]);
      g[j] = grad[j] * value[j] * factor.slope;
      grad[j] *= factor.value;
    }
    store<T, kVec>(grad_gate.at<T>(row) + c, g);
    store<T, kVec>(grad_x.at<T>(row) + c, grad);
  }
}

// Calls body with the number of elements per access and the form.
template <int kPacked, class Body>
void visit_gates(bool packed, GateForm form, const Body& body) {
  const auto visit = [&]<int kVec>() {
    switch (form) {
      case GateForm::sigmoid: return body.template operator()<kVec, GateForm::sigmoid>();
      case GateForm::silu: return body.template operator()<kVec, GateForm::silu>();
      case GateForm::plain: return body.template operator()<kVec, GateForm::plain>();
    }
  };
  packed ? visit.template operator()<kPacked>() : visit.template operator()<1>();
}

}  // namespace

void launch(const OutputGateForward& args, cudaStream_t stream) {
  if (args.out.rows == 0) return;
  ensure(args.x.cols == args.out.cols && args.gate.cols == args.out.cols && args.x.dtype == args.out.dtype &&
             args.gate.dtype == args.out.dtype,
         "each output has a gate of its dtype");
  visit_elements(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const bool packed = packs(args.x, kPack<T>) && packs(args.gate, kPack<T>) && packs(args.out, kPack<T>);
    visit_gates<kPack<T>>(packed, args.form, [&]<int kVec, GateForm kForm>() {
      output_gate_kernel<T, kVec, kForm>
          <<<grid_size(args.out.rows), row_threads(ceil_div(args.out.cols, kVec), kMostThreads), 0, stream>>>(
              args.x.as<T>(), args.x.row_stride, args.gate.as<T>(), args.gate.row_stride, args.out.as<T>(),
              args.out.row_stride, args.out.cols);
    });
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
    const bool packed = packs(args.x, kPack<T>) && packs(args.gate, kPack<T>) && packs(args.grad_out, kPack<T>) &&
                        packs(args.grad_x, kPack<T>) && packs(args.grad_gate, kPack<T>);
    visit_gates<kPack<T>>(packed, args.form, [&]<int kVec, GateForm kForm>() {
      output_gate_backward_kernel<T, kVec, kForm>
          <<<grid_size(args.x.rows), row_threads(ceil_div(args.x.cols, kVec), kMostThreads), 0, stream>>>(
              rows_of(args.x), rows_of(args.gate), rows_of(args.grad_out), rows_of(args.grad_x),
              rows_of(args.grad_gate), args.x.cols);
    });
  });
  check_launch();
}

}  // namespace megatrain
