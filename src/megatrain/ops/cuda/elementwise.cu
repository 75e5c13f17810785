// One block per row.
#include "megatrain/ops/cuda/gated.cuh"
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kMostThreads = 256;

template <class T>
__device__ float row_gate_at(const T* row_gate, int64_t stride) {
  float gate[1];
  load<T, 1>(row_gate + blockIdx.x * stride, gate);
  return gate[0];
}

// `row_gate` is nullptr without row gates; multiplying by 1 then changes no bit.
template <class Act, class T, int kVec>
__global__ void gated_forward_kernel(const T* gate_up, int64_t in_stride, const T* row_gate, int64_t row_gate_stride,
                                     T* out, int64_t out_stride, int64_t cols) {
  const T* gate = gate_up + blockIdx.x * in_stride;
  const float factor = row_gate ? sigmoid(row_gate_at(row_gate, row_gate_stride)) : 1.0f;
  T* to = out + blockIdx.x * out_stride;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec) {
    float g[kVec], u[kVec];
    load<T, kVec>(gate + c, g);
    load_up<Act, T, kVec>(gate + c, cols, u);
#pragma unroll
    for (int j = 0; j < kVec; ++j) g[j] = gated<Act>(g[j], u[j]) * factor;
    store<T, kVec>(to + c, g);
  }
}

template <class Act, class T, int kVec>
__global__ void gated_backward_kernel(const T* gate_up, int64_t in_stride, const T* grad_out, int64_t out_stride,
                                      T* grad_gate_up, int64_t grad_stride, T* out, int64_t act_stride, int64_t cols) {
  const T* gate = gate_up + blockIdx.x * in_stride;
  const T* dy = grad_out + blockIdx.x * out_stride;
  T* grad = grad_gate_up + blockIdx.x * grad_stride;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec) {
    float g[kVec], u[kVec], d[kVec];
    load<T, kVec>(gate + c, g);
    load_up<Act, T, kVec>(gate + c, cols, u);
    load<T, kVec>(dy + c, d);
    if (out) {
      float act[kVec];
#pragma unroll
      for (int j = 0; j < kVec; ++j) act[j] = gated<Act>(g[j], u[j]);
      store<T, kVec>(out + blockIdx.x * act_stride + c, act);
    }
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const GatedGradient both = gated_gradient<Act>(g[j], u[j], d[j]);
      g[j] = both.gate;
      u[j] = both.up;
    }
    store<T, kVec>(grad + c, g);
    store_up<Act, T, kVec>(grad + c, cols, u);
  }
}

template <class T>
struct RowGates {
  const T* gate;  // (T, 1)
  int64_t gate_stride;
  T* grad;  // (T, 1)
  int64_t grad_stride;
};

// The same with row gates.
template <class Act, class T, int kVec>
__global__ void row_gated_backward_kernel(const T* gate_up, int64_t in_stride, RowGates<T> rows, const T* grad_out,
                                          int64_t out_stride, T* grad_gate_up, int64_t grad_stride, T* out,
                                          int64_t act_stride, int64_t cols) {
  __shared__ float shared[32];
  const T* gate = gate_up + blockIdx.x * in_stride;
  const T* dy = grad_out + blockIdx.x * out_stride;
  T* grad = grad_gate_up + blockIdx.x * grad_stride;
  const float row_gate = row_gate_at(rows.gate, rows.gate_stride), factor = sigmoid(row_gate);
  float dot = 0;
  for (int64_t c = threadIdx.x * kVec; c < cols; c += blockDim.x * kVec) {
    float g[kVec], u[kVec], d[kVec], act[kVec];
    load<T, kVec>(gate + c, g);
    load_up<Act, T, kVec>(gate + c, cols, u);
    load<T, kVec>(dy + c, d);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      act[j] = gated<Act>(g[j], u[j]);
      dot += d[j] * act[j];
      act[j] *= factor;
      const GatedGradient both = gated_gradient<Act>(g[j], u[j], factor * d[j]);
      g[j] = both.gate;
      u[j] = both.up;
    }
    if (out) store<T, kVec>(out + blockIdx.x * act_stride + c, act);
    store<T, kVec>(grad + c, g);
    store_up<Act, T, kVec>(grad + c, cols, u);
  }
  dot = block_sum(dot, shared);
  if (threadIdx.x != 0) return;
  const float grad_gate[1] = {dot * (factor * sigmoid(-row_gate))};
  store<T, 1>(rows.grad + blockIdx.x * rows.grad_stride, grad_gate);
}

void check_row_gate(const View& row_gate, const View& of) {
  ensure(row_gate.empty() || (row_gate.dtype == of.dtype && row_gate.rows == of.rows && row_gate.cols == 1),
         "a row gate is one number a row");
}

}  // namespace

void launch(const GatedForward& args, cudaStream_t stream) {
  if (args.out.rows == 0) return;
  ensure(args.gate_up.cols == parts_of(args.activation) * args.out.cols && args.gate_up.dtype == args.out.dtype,
         "a gated activation halves a row");
  check_row_gate(args.row_gate, args.out);
  visit_elements(args.out.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&]<int kVec>() {
      const unsigned threads = row_threads(ceil_div(args.out.cols, kVec), kMostThreads);
      visit_activation(args.activation, [&]<class Act>() {
        gated_forward_kernel<Act, T, kVec><<<grid_size(args.out.rows), threads, 0, stream>>>(
            args.gate_up.as<T>(), args.gate_up.row_stride, args.row_gate.as<T>(), args.row_gate.row_stride,
            args.out.as<T>(), args.out.row_stride, args.out.cols);
      });
    };
    // The up half starts at column F, so F itself must be a whole number of packs.
    if (packs(args.gate_up, kPack<T>) && packs(args.out, kPack<T>)) {
      run.template operator()<kPack<T>>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

void launch(const GatedBackward& args, cudaStream_t stream) {
  if (args.grad_out.rows == 0) return;
  ensure(args.gate_up.cols == parts_of(args.activation) * args.grad_out.cols &&
             args.grad_gate_up.cols == args.gate_up.cols,
         "a gated activation halves a row");
  ensure(args.gate_up.dtype == args.grad_out.dtype && args.grad_gate_up.dtype == args.grad_out.dtype,
         "tensors of a gated activation share a dtype");
  check_row_gate(args.row_gate, args.grad_out);
  ensure(args.row_gate.empty() == args.grad_row_gate.empty() &&
             (args.row_gate.empty() || args.grad_row_gate.dtype == args.grad_out.dtype),
         "a row gate has a gradient");
  visit_elements(args.grad_out.dtype, [&](auto element) {
    using T = decltype(element);
    const RowGates<T> rows{args.row_gate.as<T>(), args.row_gate.row_stride, args.grad_row_gate.as<T>(),
                           args.grad_row_gate.row_stride};
    const auto run = [&]<int kVec>() {
      const unsigned threads = row_threads(ceil_div(args.grad_out.cols, kVec), kMostThreads);
      visit_activation(args.activation, [&]<class Act>() {
        if (rows.gate) {
          row_gated_backward_kernel<Act, T, kVec><<<grid_size(args.grad_out.rows), threads, 0, stream>>>(
              args.gate_up.as<T>(), args.gate_up.row_stride, rows, args.grad_out.as<T>(), args.grad_out.row_stride,
              args.grad_gate_up.as<T>(), args.grad_gate_up.row_stride, args.out.as<T>(), args.out.row_stride,
              args.grad_out.cols);
          return;
        }
        gated_backward_kernel<Act, T, kVec><<<grid_size(args.grad_out.rows), threads, 0, stream>>>(
            args.gate_up.as<T>(), args.gate_up.row_stride, args.grad_out.as<T>(), args.grad_out.row_stride,
            args.grad_gate_up.as<T>(), args.grad_gate_up.row_stride, args.out.as<T>(), args.out.row_stride,
            args.grad_out.cols);
      });
    };
    if (packs(args.gate_up, kPack<T>) && packs(args.grad_out, kPack<T>) && packs(args.grad_gate_up, kPack<T>) &&
        packs(args.out, kPack<T>)) {
      run.template operator()<kPack<T>>();
    } else {
      run.template operator()<1>();
    }
  });
  check_launch();
}

}  // namespace megatrain
