// A thread owns a column of some rows. Ranges of rows depend only on their number, so the parameters' gradients, one
// partial sum for each range, are sums over a fixed tree.
#include "megatrain/device/cuda/numeric.cuh"
#include "megatrain/ops/cuda/kernels.h"

namespace megatrain {

namespace {

constexpr int kGateColumns = 32;
constexpr int kGateRows = 8;  // threads that share a column
constexpr int kSkipThreads = 128;
constexpr int64_t kLeastRows = 64;
constexpr int64_t kMostPartials = 256;

struct StepRows {
  void* data;
  int64_t stride;

  template <class T>
  __device__ T* at(int64_t row, int64_t column) const {
    return static_cast<T*>(data) + row * stride + column;
  }
};

StepRows step_rows(const View& view) { return {view.data, view.row_stride}; }

__device__ float free_step(float x) { return x > kSoftplusThreshold ? x : log1pf(expf(x)); }
__device__ float clamped(float x, const StepLimits& limits) { return fminf(fmaxf(x, limits.least), limits.most); }

// block (kGateColumns, kGateRows), grid (rows, columns)
template <class T, class W>
__global__ void steps_forward_kernel(int64_t rows, int64_t columns, StepRows dt, const W* a_log, const W* dt_bias,
                                     StepLimits limits, StepRows step, StepRows g) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kGateColumns + threadIdx.x;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kGateRows + threadIdx.y;
  if (column >= columns || row >= rows) return;
  const float value = clamped(free_step(widen(*dt.at<const T>(row, column)) + widen(dt_bias[column])), limits);
  *step.at<float>(row, column) = value;
  *g.at<float>(row, column) = -expf(widen(a_log[column])) * value;
}

// block (kGateColumns, kGateRows), grid (ranges, columns): log_partials and bias_partials (ranges, columns)
template <class T, class W>
__global__ void steps_backward_kernel(int64_t rows, int64_t columns, int64_t range, StepRows dt, const W* a_log,
                                      const W* dt_bias, StepLimits limits, StepRows grad_step, StepRows grad_g,
                                      StepRows grad_dt, float* log_partials, float* bias_partials) {
  __shared__ float shared[2][kGateRows][kGateColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kGateColumns + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * range, end = begin + range < rows ? begin + range : rows;
  float log_sum = 0, bias_sum = 0;
  if (column < columns) {
    const float rate = expf(widen(a_log[column])), bias = widen(dt_bias[column]);
    for (int64_t row = begin + threadIdx.y; row < end; row += kGateRows) {
      const float x = widen(*dt.at<const T>(row, column)) + bias, step = free_step(x);
      const float by_rate = *grad_g.at<const float>(row, column) * rate;
      const bool within = step >= limits.least && step <= limits.most;
      const float slope = !within ? 0.0f : x > kSoftplusThreshold ? 1.0f : 1.0f / (1.0f + expf(-x));
      const float grad = (*grad_step.at<const float>(row, column) - by_rate) * slope;
      log_sum -= by_rate * clamped(step, limits);
      bias_sum += grad;
      *grad_dt.at<T>(row, column) = narrow<T>(grad);
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

// grid (ranges, heads): partials (ranges, heads) of x . grad_out
template <class T>
__global__ void __launch_bounds__(kSkipThreads)
    skip_gradient_kernel(int64_t rows, int64_t range, int64_t heads, int64_t head_dim, StepRows x, StepRows grad_out,
                         float* partials) {
  __shared__ float warps[kSkipThreads / 32];
  const int64_t head = blockIdx.y, begin = static_cast<int64_t>(blockIdx.x) * range;
  const int64_t end = begin + range < rows ? begin + range : rows;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < (end - begin) * head_dim; i += kSkipThreads) {
    const int64_t row = begin + i / head_dim, column = head * head_dim + i % head_dim;
    sum += widen(*x.at<const T>(row, column)) * widen(*grad_out.at<const T>(row, column));
  }
  sum = block_sum(sum, warps);
  if (threadIdx.x == 0) partials[blockIdx.x * heads + head] = sum;
}

int64_t step_range(int64_t rows) {
  const int64_t least = ceil_div(rows, kMostPartials);
  return least < kLeastRows ? kLeastRows : least;
}

template <class Body>
void visit_steps(const View& dt, const View& a_log, const View& dt_bias, const Body& body) {
  ensure(dt_bias.dtype == a_log.dtype, "the parameters of a step have one dtype");
  ensure(a_log.cols == dt.cols && dt_bias.cols == dt.cols, "a step has one parameter for each head");
  visit_elements(dt.dtype, [&](auto element) {
    visit_elements(a_log.dtype,
                   [&](auto of_weight) { body.template operator()<decltype(element), decltype(of_weight)>(); });
  });
}

}  // namespace

void launch(const SsdGatesForward& args, cudaStream_t stream) {
  const int64_t rows = args.dt.rows, columns = args.dt.cols;
  if (rows == 0) return;
  ensure(args.step.dtype == DType::f32 && args.g.dtype == DType::f32, "steps are fp32");
  visit_steps(args.dt, args.a_log, args.dt_bias, [&]<class T, class W>() {
    const dim3 grid(grid_size(ceil_div(rows, kGateRows)), grid_size(ceil_div(columns, kGateColumns)));
    steps_forward_kernel<T, W><<<grid, dim3(kGateColumns, kGateRows), 0, stream>>>(
        rows, columns, step_rows(args.dt), args.a_log.as<W>(), args.dt_bias.as<W>(), args.limits, step_rows(args.step),
        step_rows(args.g));
  });
  check_launch();
}

int64_t ssd_gates_scratch_bytes(int64_t rows, int64_t heads) {
  return 2 * ceil_div(rows, step_range(rows)) * heads * static_cast<int64_t>(sizeof(float));
}

void launch(const SsdGatesBackward& args, void* scratch, cudaStream_t stream) {
  const int64_t rows = args.dt.rows, columns = args.dt.cols, range = step_range(rows), ranges = ceil_div(rows, range);
  ensure(args.grad_step.dtype == DType::f32 && args.grad_g.dtype == DType::f32, "gradients of steps are fp32");
  float* log_partials = static_cast<float*>(scratch);
  float* bias_partials = log_partials + ranges * columns;
  if (rows > 0) {
    visit_steps(args.dt, args.a_log, args.dt_bias, [&]<class T, class W>() {
      const dim3 grid(grid_size(ranges), grid_size(ceil_div(columns, kGateColumns)));
      steps_backward_kernel<T, W><<<grid, dim3(kGateColumns, kGateRows), 0, stream>>>(
          rows, columns, range, step_rows(args.dt), args.a_log.as<W>(), args.dt_bias.as<W>(), args.limits,
          step_rows(args.grad_step), step_rows(args.grad_g), step_rows(args.grad_dt), log_partials, bias_partials);
    });
    check_launch();
  }
  if (!args.grad_a_log.empty())
    launch_sum_partials(log_partials, ranges, columns, args.grad_a_log.as<float>(), args.accumulate, stream);
  if (!args.grad_dt_bias.empty())
    launch_sum_partials(bias_partials, ranges, columns, args.grad_dt_bias.as<float>(), args.accumulate, stream);
}

void launch_skip_gradient(const SsdBackward& args, void* scratch, cudaStream_t stream) {
  if (args.grad_skip.empty()) return;
  const SsdShape& shape = args.shape;
  const int64_t range = step_range(shape.tokens), ranges = ceil_div(shape.tokens, range);
  if (shape.tokens > 0) {
    visit_elements(args.x.dtype, [&](auto element) {
      const dim3 grid(grid_size(ranges), grid_size(shape.heads));
      skip_gradient_kernel<decltype(element)>
          <<<grid, kSkipThreads, 0, stream>>>(shape.tokens, range, shape.heads, shape.head_dim, step_rows(args.x),
                                              step_rows(args.grad_out), static_cast<float*>(scratch));
    });
    check_launch();
  }
  launch_sum_partials(static_cast<const float*>(scratch), ranges, shape.heads, args.grad_skip.as<float>(),
                      args.accumulate, stream);
}

}  // namespace megatrain
