#include "megatrain/ops/output_gate.h"

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

template <GateForm kForm>
float gated(float x, float gate) {
  if constexpr (kForm == GateForm::plain) return x * gate;
  if constexpr (kForm == GateForm::silu) return x * (gate / (1.0f + exp_f32(-gate)));
  return x / (1.0f + exp_f32(-gate));
}

// A gate's factor, and its slope.
struct Factor {
  float value, slope;
};

template <GateForm kForm>
Factor factor_of(float gate) {
  if constexpr (kForm == GateForm::plain) return {gate, 1.0f};
  const float s = 1.0f / (1.0f + exp_f32(-gate));
  if constexpr (kForm == GateForm::silu) return {gate * s, s * (1.0f + gate * (1.0f - s))};
  return {s, s * (1.0f - s)};
}

// Calls body with the form.
template <class Body>
void visit_form(GateForm form, const Body& body) {
  switch (form) {
    case GateForm::sigmoid: return body.template operator()<GateForm::sigmoid>();
    case GateForm::silu: return body.template operator()<GateForm::silu>();
    case GateForm::plain: return body.template operator()<GateForm::plain>();
  }
}

}  // namespace

void output_gate_forward(const Context& context, const OutputGateForward& args) {
  for (const View& view : {args.x, args.gate, args.out}) check_dtype(view);
  ensure(args.x.cols == args.out.cols && args.gate.cols == args.out.cols, "each output has a gate");
  const int64_t size = args.out.cols;
  visit_form(args.form, [&]<GateForm kForm>() {
    for_rows(context.team, args.out.rows, size, [&](int64_t row) {
      for_chunks(size, [&](int64_t begin, int64_t count) {
        Chunk x_buffer, gate_buffer, out;
        const float* x = read(args.x, row, begin, count, x_buffer.data());
        const float* gate = read(args.gate, row, begin, count, gate_buffer.data());
        for (int64_t i = 0; i < count; ++i) out[i] = gated<kForm>(x[i], gate[i]);
        narrow(out.data(), args.out, row, begin, count);
      });
    });
  });
}

void output_gate_backward(const Context& context, const OutputGateBackward& args) {
  for (const View& view : {args.x, args.gate, args.grad_out, args.grad_x, args.grad_gate}) check_dtype(view);
  ensure(args.x.cols == args.grad_out.cols && args.gate.cols == args.x.cols && args.grad_x.cols == args.x.cols &&
             args.grad_gate.cols == args.x.cols,
         "each output has a gate");
  const int64_t size = args.grad_out.cols;
  visit_form(args.form, [&]<GateForm kForm>() {
    for_rows(context.team, args.grad_out.rows, size, [&](int64_t row) {
      for_chunks(size, [&](int64_t begin, int64_t count) {
        Chunk x_buffer, gate_buffer, grad_buffer, grad_x, grad_gate;
        const float* x = read(args.x, row, begin, count, x_buffer.data());
        const float* gate = read(args.gate, row, begin, count, gate_buffer.data());
        const float* grad = read(args.grad_out, row, begin, count, grad_buffer.data());
        for (int64_t i = 0; i < count; ++i) {
          const Factor factor = factor_of<kForm>(gate[i]);
          grad_gate[i] = grad[i] * x[i] * factor.slope;
          grad_x[i] = grad[i] * factor.value;
        }
        narrow(grad_gate.data(), args.grad_gate, row, begin, count);
        narrow(grad_x.data(), args.grad_x, row, begin, count);
      });
    });
  });
}

}  // namespace megatrain::cpu
