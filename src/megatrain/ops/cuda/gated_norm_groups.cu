// The gated norm for groups of any size, with the gate on either side of the norm and with a weight of a group's or of
// a row's size. A block normalises a group. The weight's gradient is one partial sum for each range of rows, and ranges
// depend only on their number.
#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/ops/cuda/kernels.h"

namespace megatrain {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kLeastRows = 64;  // of a range
constexpr int64_t kMostRanges = 256;

struct GroupRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* group(int64_t row, int64_t first) const {
    return static_cast<T*>(data) + row * stride + first;
  }
};

GroupRows group_rows(const View& view) { return {view.data, view.row_stride}; }

struct GroupArgs {
  int64_t rows, groups, size, weights;  // weights: of the weight
  float eps;
  bool gate_first;
  GroupRows x, z, out, grad_out, grad_x, grad_z;
};

struct GateOf {
  __device__ explicit GateOf(float z) {
    const float s = 1.0f / (1.0f + expf(-z));
    value = z / (1.0f + expf(-z));
    slope = s + value * (1.0f - s);
  }
  float value, slope;
};

template <class T>
__device__ float normed_at(const GroupArgs& args, const T* x, const T* z, int64_t i) {
  return args.gate_first ? widen(x[i]) * GateOf(widen(z[i])).value : widen(x[i]);
}

template <class T>
__device__ float group_factor(const GroupArgs& args, const T* x, const T* z, float* warps) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < args.size; i += kThreads) {
    const float normed = normed_at(args, x, z, i);
    squares += normed * normed;
  }
  return 1.0f / sqrtf(block_sum(squares, warps) / static_cast<float>(args.size) + args.eps);
}

// grid (rows * groups)
template <class T>
__global__ void __launch_bounds__(kThreads) groups_forward_kernel(GroupArgs args, const T* weight) {
  __shared__ float warps[kThreads / 32];
  const int64_t row = blockIdx.x / args.groups, first = blockIdx.x % args.groups * args.size;
  const T *x = args.x.group<const T>(row, first), *z = args.z.group<const T>(row, first);
  const T* w = weight + first % args.weights;
  const float inv = group_factor(args, x, z, warps);
  for (int64_t i = threadIdx.x; i < args.size; i += kThreads) {
    const float value = normed_at(args, x, z, i) * inv * widen(w[i]);
    args.out.group<T>(row, first)[i] = narrow<T>(args.gate_first ? value : value * GateOf(widen(z[i])).value);
  }
}

// grid (rows * groups): factors (rows, groups)
template <class T>
__global__ void __launch_bounds__(kThreads) groups_factor_kernel(GroupArgs args, float* factors) {
  __shared__ float warps[kThreads / 32];
  const int64_t row = blockIdx.x / args.groups, first = blockIdx.x % args.groups * args.size;
  const float inv = group_factor(args, args.x.group<const T>(row, first), args.z.group<const T>(row, first), warps);
  if (threadIdx.x == 0) factors[blockIdx.x] = inv;
}

// grid (columns of the weight / kThreads, ranges): partials (ranges, weights)
template <class T>
__global__ void __launch_bounds__(kThreads)
    groups_weight_kernel(GroupArgs args, int64_t range, const float* factors, float* partials) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= args.weights) return;
  const int64_t begin = blockIdx.y * range, end = begin + range < args.rows ? begin + range : args.rows;
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t at = column; at < args.groups * args.size; at += args.weights) {
      const T *x = args.x.group<const T>(row, 0), *z = args.z.group<const T>(row, 0);
      const float normed = normed_at(args, x, z, at) * factors[row * args.groups + at / args.size];
      const float value = args.gate_first ? normed : normed * GateOf(widen(z[at])).value;
      sum += widen(args.grad_out.group<const T>(row, 0)[at]) * value;
    }
  }
  partials[blockIdx.y * args.weights + column] = sum;
}

// grid (rows * groups). An element's gradients overwrite its inputs after the group's sums are known.
template <class T>
__global__ void __launch_bounds__(kThreads)
    groups_backward_kernel(GroupArgs args, const T* weight, const float* factors) {
  __shared__ float warps[kThreads / 32];
  const int64_t row = blockIdx.x / args.groups, first = blockIdx.x % args.groups * args.size;
  const T *x = args.x.group<const T>(row, first), *z = args.z.group<const T>(row, first);
  const T *g = args.grad_out.group<const T>(row, first), *w = weight + first % args.weights;
  const float inv = factors[blockIdx.x];
  const auto weighted = [&](int64_t i) {  // the gradient of normed * inv
    const float grad = widen(g[i]) * widen(w[i]);
    return args.gate_first ? grad : grad * GateOf(widen(z[i])).value;
  };
  float dot = 0;
  for (int64_t i = threadIdx.x; i < args.size; i += kThreads) dot += weighted(i) * normed_at(args, x, z, i);
  const float along = block_sum(dot, warps) * inv * inv / static_cast<float>(args.size);
  for (int64_t i = threadIdx.x; i < args.size; i += kThreads) {
    const GateOf gate(widen(z[i]));
    const float value = widen(x[i]), grad = inv * (weighted(i) - normed_at(args, x, z, i) * along);
    const float by_norm = widen(g[i]) * widen(w[i]) * (value * inv);
    args.grad_x.group<T>(row, first)[i] = narrow<T>(args.gate_first ? grad * gate.value : grad);
    args.grad_z.group<T>(row, first)[i] = narrow<T>((args.gate_first ? grad * value : by_norm) * gate.slope);
  }
}

int64_t rows_of_range(int64_t rows) {
  const int64_t least = ceil_div(rows, kMostRanges);
  return least < kLeastRows ? kLeastRows : least;
}

template <class Args>
GroupArgs group_args(const Args& args) {
  const int64_t size = args.group_size();
  ensure(args.x.cols % size == 0 && args.z.cols == args.x.cols, "a row of a gated norm has whole groups");
  ensure(args.weight.cols == size || args.weight.cols == args.x.cols,
         "a gated norm's weight has the size of a group or of a row");
  ensure(args.z.dtype == args.x.dtype && args.weight.dtype == args.x.dtype, "a gated norm's tensors share a dtype");
  GroupArgs made{};
  made.rows = args.x.rows;
  made.groups = args.x.cols / size;
  made.size = size;
  made.weights = args.weight.cols;
  made.eps = args.eps;
  made.gate_first = args.gate_first;
  made.x = group_rows(args.x);
  made.z = group_rows(args.z);
  return made;
}

}  // namespace

void launch_norm_groups(const GatedNormForward& args, cudaStream_t stream) {
  if (args.x.rows == 0) return;
  ensure(args.out.dtype == args.x.dtype, "a gated norm's tensors share a dtype");
  GroupArgs call = group_args(args);
  call.out = group_rows(args.out);
  visit_elements(args.x.dtype, [&](auto element) {
    using T = decltype(element);
    groups_forward_kernel<T><<<grid_size(call.rows * call.groups), kThreads, 0, stream>>>(call, args.weight.as<T>());
  });
  check_launch();
}

int64_t norm_groups_scratch_bytes(int64_t rows, int64_t columns, int64_t size) {
  const int64_t partials = ceil_div(rows, rows_of_range(rows)) * columns;
  return (rows * (columns / size) + partials) * static_cast<int64_t>(sizeof(float));
}

void launch_norm_groups(const GatedNormBackward& args, void* scratch, cudaStream_t stream) {
  for (const View* view : {&args.grad_out, &args.grad_x, &args.grad_z})
    ensure(view->dtype == args.x.dtype, "a gated norm's tensors share a dtype");
  ensure(args.grad_weight.empty() || args.grad_weight.dtype == DType::f32, "weight gradients are fp32");
  GroupArgs call = group_args(args);
  call.grad_out = group_rows(args.grad_out);
  call.grad_x = group_rows(args.grad_x);
  call.grad_z = group_rows(args.grad_z);
  float* factors = static_cast<float*>(scratch);
  float* partials = factors + call.rows * call.groups;
  const int64_t range = rows_of_range(call.rows), ranges = ceil_div(call.rows, range);
  if (call.rows > 0) {
    visit_elements(args.x.dtype, [&](auto element) {
      using T = decltype(element);
      const unsigned blocks = grid_size(call.rows * call.groups);
      groups_factor_kernel<T><<<blocks, kThreads, 0, stream>>>(call, factors);
      if (!args.grad_weight.empty()) {
        const dim3 grid(grid_size(ceil_div(call.weights, int64_t{kThreads})), grid_size(ranges));
        groups_weight_kernel<T><<<grid, kThreads, 0, stream>>>(call, range, factors, partials);
      }
      groups_backward_kernel<T><<<blocks, kThreads, 0, stream>>>(call, args.weight.as<T>(), factors);
    });
    check_launch();
  }
  if (args.grad_weight.empty()) return;
  launch_sum_partials(partials, ranges, call.weights, args.grad_weight.as<float>(), args.accumulate, stream);
}

}  // namespace megatrain
