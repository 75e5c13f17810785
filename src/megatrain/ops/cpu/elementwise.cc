#include "megatrain/ops/elementwise.h"

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {
namespace {

// The sigmoid's argument and gate times its slope.
struct Silu {
  static float argument(float gate) { return gate; }
  static float gate_slope(float gate) { return gate; }
};
struct GeluTanh {
  static float argument(float gate) { return gate * (kGeluLinear + kGeluCubic * (gate * gate)); }
  static float gate_slope(float gate) { return gate * (kGeluLinear + 3.0f * kGeluCubic * (gate * gate)); }
};

template <class Act>
void forward(const Context& context, const GatedForward& args) {
  const int64_t size = args.out.cols;
  for_rows(context.team, args.out.rows, size, [&](int64_t row) {
    for_chunks(size, [&](int64_t begin, int64_t count) {
      Chunk gate_buffer, up_buffer, out;
      const float* gate = read(args.gate_up, row, begin, count, gate_buffer.data());
      const float* up = read(args.gate_up, row, size + begin, count, up_buffer.data());
      for (int64_t i = 0; i < count; ++i) out[i] = gate[i] / (1.0f + exp_f32(-Act::argument(gate[i]))) * up[i];
      narrow(out.data(), args.out, row, begin, count);
    });
  });
}

// With s = sigmoid(z(gate)): d(gate s)/d(gate) = s (1 + gate z' (1 - s))
template <class Act>
void backward(const Context& context, const GatedBackward& args) {
  const int64_t size = args.grad_out.cols;
  for_rows(context.team, args.grad_out.rows, size, [&](int64_t row) {
    for_chunks(size, [&](int64_t begin, int64_t count) {
      Chunk gate_buffer, up_buffer, grad_buffer, grad_gate, grad_up, out;
      const float* gate = read(args.gate_up, row, begin, count, gate_buffer.data());
      const float* up = read(args.gate_up, row, size + begin, count, up_buffer.data());
      const float* grad = read(args.grad_out, row, begin, count, grad_buffer.data());
      for (int64_t i = 0; i < count; ++i) {
        const float e = exp_f32(-Act::argument(gate[i]));
        const float s = 1.0f / (1.0f + e);
        grad_gate[i] = grad[i] * up[i] * s * (1.0f + Act::gate_slope(gate[i]) * (e * s));
        grad_up[i] = grad[i] * (gate[i] * s);
        out[i] = gate[i] / (1.0f + e) * up[i];
      }
      if (!args.out.empty()) narrow(out.data(), args.out, row, begin, count);
      narrow(grad_gate.data(), args.grad_gate_up, row, begin, count);
      narrow(grad_up.data(), args.grad_gate_up, row, size + begin, count);
    });
  });
}

}  // namespace

void gated_forward(const Context& context, const GatedForward& args) {
  check_dtype(args.gate_up);
  check_dtype(args.out);
  ensure(args.gate_up.cols == 2 * args.out.cols, "a row of a gated activation is gate then up");
  args.activation == Activation::silu ? forward<Silu>(context, args) : forward<GeluTanh>(context, args);
}

void gated_backward(const Context& context, const GatedBackward& args) {
  check_dtype(args.gate_up);
  check_dtype(args.grad_out);
  check_dtype(args.grad_gate_up);
  ensure(args.gate_up.cols == 2 * args.grad_out.cols && args.grad_gate_up.cols == args.gate_up.cols,
         "a row of a gated activation is gate then up");
  args.activation == Activation::silu ? backward<Silu>(context, args) : backward<GeluTanh>(context, args);
}

}  // namespace megatrain::cpu
