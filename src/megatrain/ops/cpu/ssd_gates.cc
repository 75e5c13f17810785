#include "megatrain/ops/ssd_gates.h"

#include <cmath>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

constexpr int64_t kStepColumns = 32;

// Columns [begin, begin + count) of the parameters.
struct StepColumns {
  StepColumns(const View& a_log, const View& dt_bias, int64_t begin, int64_t count) {
    widen(a_log, 0, begin, count, rate);
    widen(dt_bias, 0, begin, count, bias);
    for (int64_t c = 0; c < count; ++c) rate[c] = std::exp(rate[c]);
  }
  float rate[kStepColumns];  // exp(a_log)
  float bias[kStepColumns];
};

struct ClampedStep {
  ClampedStep(float x, const StepLimits& limits) {
    const float free = x > kSoftplusThreshold ? x : std::log1p(std::exp(x));
    value = std::min(std::max(free, limits.least), limits.most);
    const bool within = free >= limits.least && free <= limits.most;
    slope = !within ? 0.0f : x > kSoftplusThreshold ? 1.0f : sigmoid(x);
  }
  float value, slope;
};

void check_steps(const View& dt, const View& a_log, const View& dt_bias) {
  for (const View* view : {&dt, &a_log, &dt_bias}) check_dtype(*view);
  ensure(a_log.cols == dt.cols && dt_bias.cols == dt.cols, "a step has one parameter for each head");
}

void write_step_sum(const View& to, int64_t column, double sum, bool accumulate) {
  if (to.empty()) return;
  float& grad = to.as<float>()[column];
  grad = static_cast<float>(accumulate ? grad + sum : sum);
}

}  // namespace

void ssd_gates_forward(const Context& context, const SsdGatesForward& args) {
  check_steps(args.dt, args.a_log, args.dt_bias);
  ensure(args.step.dtype == DType::f32 && args.g.dtype == DType::f32, "steps are fp32");
  const int64_t columns = args.dt.cols;
  context.team.parallel_for(ceil_div(columns, kStepColumns), [&](int64_t block) {
    const int64_t begin = block * kStepColumns, count = std::min(kStepColumns, columns - begin);
    const StepColumns parameters(args.a_log, args.dt_bias, begin, count);
    float buffer[kStepColumns];
    for (int64_t t = 0; t < args.dt.rows; ++t) {
      const float* dt = read(args.dt, t, begin, count, buffer);
      float* step = element<float>(args.step, t, begin);
      float* g = element<float>(args.g, t, begin);
      for (int64_t c = 0; c < count; ++c) {
        step[c] = ClampedStep(dt[c] + parameters.bias[c], args.limits).value;
        g[c] = -parameters.rate[c] * step[c];
      }
    }
  });
}

// d g / d step = -exp(a_log), d g / d a_log = g
void ssd_gates_backward(const Context& context, const SsdGatesBackward& args) {
  check_steps(args.dt, args.a_log, args.dt_bias);
  ensure(args.grad_step.dtype == DType::f32 && args.grad_g.dtype == DType::f32, "gradients of steps are fp32");
  const int64_t columns = args.dt.cols;
  context.team.parallel_for(ceil_div(columns, kStepColumns), [&](int64_t block) {
    const int64_t begin = block * kStepColumns, count = std::min(kStepColumns, columns - begin);
    const StepColumns parameters(args.a_log, args.dt_bias, begin, count);
    float buffer[kStepColumns], grad_dt[kStepColumns];
    double bias_sum[kStepColumns] = {}, log_sum[kStepColumns] = {};
    for (int64_t t = 0; t < args.dt.rows; ++t) {
      const float* dt = read(args.dt, t, begin, count, buffer);
      const float* grad_step = element<float>(args.grad_step, t, begin);
      const float* grad_g = element<float>(args.grad_g, t, begin);
      for (int64_t c = 0; c < count; ++c) {
        const ClampedStep step(dt[c] + parameters.bias[c], args.limits);
        const float by_rate = grad_g[c] * parameters.rate[c];
        grad_dt[c] = (grad_step[c] - by_rate) * step.slope;
        bias_sum[c] += grad_dt[c];
        log_sum[c] -= static_cast<double>(by_rate) * step.value;
      }
      narrow(grad_dt, args.grad_dt, t, begin, count);
    }
    for (int64_t c = 0; c < count; ++c) {
      write_step_sum(args.grad_a_log, begin + c, log_sum[c], args.accumulate);
      write_step_sum(args.grad_dt_bias, begin + c, bias_sum[c], args.accumulate);
    }
  });
}

}  // namespace megatrain::cpu
