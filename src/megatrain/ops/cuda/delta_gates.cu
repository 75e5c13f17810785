// A thread owns a column of some rows. Ranges of rows depend only on their number, so the parameters' gradients, one
// partial sum for each range, are sums over a fixed tree.
#include "megatrain/ops/cuda/kernels.h"
#include "megatrain/device/cuda/numeric.cuh"

namespace megatrain {

namespace {

constexpr int kGateColumns = 32;
constexpr int kGateRows = 8;  // threads that share a column
constexpr int64_t kLeastRows = 64;
constexpr int64_t kMostPartials = 256;

struct GateRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(data) + row * stride + column;
  }
};

GateRows gate_rows(const View& view) { return {view.data, view.row_stride}; }

__device__ float gate_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ float softplus(float x) { return x > kSoftplusThreshold ? x : log1pf(expf(x)); }
__device__ float softplus_slope(float x) { return x > kSoftplusThreshold ? 1.0f : gate_sigmoid(x); }

// block (kGateColumns, kGateRows), grid (rows, columns)
template <class T, class W>
__global__ void gates_forward_kernel(int64_t rows, int64_t columns, GateRows a, GateRows b, const W* a_log,
                                     const W* dt_bias, GateRows g, GateRows beta) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kGateColumns + threadIdx.x;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kGateRows + threadIdx.y;
  if (column >= columns || row >= rows) return;
  const float x = widen(*a.at<const T>(row, column)) + widen(dt_bias[column]);
  *g.at<float>(row, column) = -expf(widen(a_log[column])) * softplus(x);
  *beta.at<float>(row, column) = gate_sigmoid(widen(*b.at<const T>(row, column)));
}

// block (kGateColumns, kGateRows), grid (ranges, columns): log_partials and bias_partials (ranges, columns)
template <class T, class W>
__global__ void gates_backward_kernel(int64_t rows, int64_t columns, int64_t range, GateRows a, GateRows b,
                                      const W* a_log, const W* dt_bias, GateRows grad_g, GateRows grad_beta,
                                      GateRows grad_a, GateRows grad_b, float* log_partials, float* bias_partials) {
  __shared__ float shared[2][kGateRows][kGateColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kGateColumns + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * range, end = begin + range < rows ? begin + range : rows;
  float log_sum = 0, bias_sum = 0;
  if (column < columns) {
    const float rate = expf(widen(a_log[column])), bias = widen(dt_bias[column]);
    for (int64_t row = begin + threadIdx.y; row < end; row += kGateRows) {
      const float x = widen(*a.at<const T>(row, column)) + bias;
      const float s = gate_sigmoid(widen(*b.at<const T>(row, column)));
      const float by_g = -*grad_g.at<const float>(row, column) * rate;
      const float slope = by_g * softplus_slope(x);
      log_sum += by_g * softplus(x);
      bias_sum += slope;
      *grad_a.at<T>(row, column) = narrow<T>(slope);
      *grad_b.at<T>(row, column) = narrow<T>(*grad_beta.at<const float>(row, column) * s * (1.0f - s));
    }
  }
  shared[0][threadIdx.y][threadIdx.x] = log_sum;
  shared[1][threadIdx.y][threadIdx.x] = bias_sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float log_total = 0, bias_total = 0;
  for (int i = 0; i < kGateRows; ++i) {
    log_total += shared[0][i][threadIdx.x];
    bias_total += shared[1][i][threadIdx.x];
  }
  log_partials[blockIdx.x * columns + column] = log_total;
  bias_partials[blockIdx.x * columns + column] = bias_total;
}

int64_t gate_range(int64_t rows) {
  const int64_t least = ceil_div(rows, kMostPartials);
  return least < kLeastRows ? kLeastRows : least;
}

template <class Body>
void visit_gates(const View& a, const View& b, const View& a_log, const View& dt_bias, const Body& body) {
  ensure(b.dtype == a.dtype && dt_bias.dtype == a_log.dtype, "both gates have one dtype, and so have their parameters");
  ensure(a_log.cols == a.cols && dt_bias.cols == a.cols && b.cols == a.cols, "a gate has one parameter for each head");
  visit_elements(a.dtype, [&](auto element) {
    visit_elements(a_log.dtype,
                   [&](auto of_weight) { body.template operator()<decltype(element), decltype(of_weight)>(); });
  });
}

}  // namespace

void launch(const DeltaGatesForward& args, cudaStream_t stream) {
  const int64_t rows = args.a.rows, columns = args.a.cols;
  if (rows == 0) return;
  ensure(args.g.dtype == DType::f32 && args.beta.dtype == DType::f32, "gates are fp32");
  visit_gates(args.a, args.b, args.a_log, args.dt_bias, [&]<class T, class W>() {
    const dim3 grid(grid_size(ceil_div(rows, kGateRows)), grid_size(ceil_div(columns, kGateColumns)));
    gates_forward_kernel<T, W><<<grid, dim3(kGateColumns, kGateRows), 0, stream>>>(
        rows, columns, gate_rows(args.a), gate_rows(args.b), args.a_log.as<W>(), args.dt_bias.as<W>(),
        gate_rows(args.g), gate_rows(args.beta));
  });
  check_launch();
}

int64_t delta_gates_scratch_bytes(int64_t rows, int64_t heads) {
  return 2 * ceil_div(rows, gate_range(rows)) * heads * static_cast<int64_t>(sizeof(float));
}

void launch(const DeltaGatesBackward& args, void* scratch, cudaStream_t stream) {
  const int64_t rows = args.a.rows, columns = args.a.cols, range = gate_range(rows), ranges = ceil_div(rows, range);
  ensure(args.grad_g.dtype == DType::f32 && args.grad_beta.dtype == DType::f32, "gradients of gates are fp32");
  float* log_partials = static_cast<float*>(scratch);
  float* bias_partials = log_partials + ranges * columns;
  if (rows > 0) {
    visit_gates(args.a, args.b, args.a_log, args.dt_bias, [&]<class T, class W>() {
      const dim3 grid(grid_size(ranges), grid_size(ceil_div(columns, kGateColumns)));
      gates_backward_kernel<T, W><<<grid, dim3(kGateColumns, kGateRows), 0, stream>>>(
          rows, columns, range, gate_rows(args.a), gate_rows(args.b), args.a_log.as<W>(), args.dt_bias.as<W>(),
          gate_rows(args.grad_g), gate_rows(args.grad_beta), gate_rows(args.grad_a), gate_rows(args.grad_b),
          log_partials, bias_partials);
    });
    check_launch();
  }
  if (!args.grad_a_log.empty())
    launch_sum_partials(log_partials, ranges, columns, args.grad_a_log.as<float>(), args.accumulate, stream);
  if (!args.grad_dt_bias.empty())
    launch_sum_partials(bias_partials, ranges, columns, args.grad_dt_bias.as<float>(), args.accumulate, stream);
}

}  // namespace megatrain
