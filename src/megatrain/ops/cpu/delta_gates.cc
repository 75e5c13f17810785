#include "megatrain/ops/delta_gates.h"

#include <cmath>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

constexpr int64_t kGateColumns = 32;

float softplus(float x) { return x > kSoftplusThreshold ? x : std::log1p(std::exp(x)); }
float softplus_slope(float x) { return x > kSoftplusThreshold ? 1.0f : sigmoid(x); }

// Columns [begin, begin + count) of the parameters.
struct GateColumns {
  GateColumns(const View& a_log, const View& dt_bias, int64_t begin, int64_t count) {
    widen(a_log, 0, begin, count, rate);
    widen(dt_bias, 0, begin, count, bias);
    for (int64_t c = 0; c < count; ++c) rate[c] = std::exp(rate[c]);
  }
  float rate[kGateColumns];  // exp(a_log)
  float bias[kGateColumns];
};

void check_gates(const View& a, const View& b, const View& a_log, const View& dt_bias) {
  for (const View* view : {&a, &b, &a_log, &dt_bias}) check_dtype(*view);
  ensure(a_log.cols == a.cols && dt_bias.cols == a.cols && b.cols == a.cols, "a gate has one parameter for each head");
}

void write_sum(const View& to, int64_t column, double sum, bool accumulate) {
  if (to.empty()) return;
  float& grad = to.as<float>()[column];
  grad = static_cast<float>(accumulate ? grad + sum : sum);
}

}  // namespace

void delta_gates_forward(const Context& context, const DeltaGatesForward& args) {
  check_gates(args.a, args.b, args.a_log, args.dt_bias);
  ensure(args.g.dtype == DType::f32 && args.beta.dtype == DType::f32, "gates are fp32");
  const int64_t columns = args.a.cols;
  context.team.parallel_for(ceil_div(columns, kGateColumns), [&](int64_t block) {
    const int64_t begin = block * kGateColumns, count = std::min(kGateColumns, columns - begin);
    const GateColumns parameters(args.a_log, args.dt_bias, begin, count);
    float a_buffer[kGateColumns], b_buffer[kGateColumns];
    for (int64_t t = 0; t < args.a.rows; ++t) {
      const float* a = read(args.a, t, begin, count, a_buffer);
      const float* b = read(args.b, t, begin, count, b_buffer);
      float* g = element<float>(args.g, t, begin);
      float* beta = element<float>(args.beta, t, begin);
      for (int64_t c = 0; c < count; ++c) {
        g[c] = -parameters.rate[c] * softplus(a[c] + parameters.bias[c]);
        beta[c] = sigmoid(b[c]);
      }
    }
  });
}

// d g / d a = -exp(a_log) softplus'(a + dt_bias), d g / d a_log = g
void delta_gates_backward(const Context& context, const DeltaGatesBackward& args) {
  check_gates(args.a, args.b, args.a_log, args.dt_bias);
  ensure(args.grad_g.dtype == DType::f32 && args.grad_beta.dtype == DType::f32, "gates are fp32");
  const int64_t columns = args.a.cols;
  context.team.parallel_for(ceil_div(columns, kGateColumns), [&](int64_t block) {
    const int64_t begin = block * kGateColumns, count = std::min(kGateColumns, columns - begin);
    const GateColumns parameters(args.a_log, args.dt_bias, begin, count);
    float a_buffer[kGateColumns], b_buffer[kGateColumns], grad_a[kGateColumns], grad_b[kGateColumns];
    double bias_sum[kGateColumns] = {}, log_sum[kGateColumns] = {};
    for (int64_t t = 0; t < args.a.rows; ++t) {
      const float* a = read(args.a, t, begin, count, a_buffer);
      const float* b = read(args.b, t, begin, count, b_buffer);
      const float* grad_g = element<float>(args.grad_g, t, begin);
      const float* grad_beta = element<float>(args.grad_beta, t, begin);
      for (int64_t c = 0; c < count; ++c) {
        const float x = a[c] + parameters.bias[c], s = sigmoid(b[c]);
        grad_a[c] = -grad_g[c] * parameters.rate[c] * softplus_slope(x);
        grad_b[c] = grad_beta[c] * s * (1.0f - s);
        bias_sum[c] += grad_a[c];
        log_sum[c] -= static_cast<double>(grad_g[c] * parameters.rate[c]) * softplus(x);
      }
      narrow(grad_a, args.grad_a, t, begin, count);
      narrow(grad_b, args.grad_b, t, begin, count);
    }
    for (int64_t c = 0; c < count; ++c) {
      write_sum(args.grad_a_log, begin + c, log_sum[c], args.accumulate);
      write_sum(args.grad_dt_bias, begin + c, bias_sum[c], args.accumulate);
    }
  });
}

}  // namespace megatrain::cpu
