#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"

namespace megatrain::cpu {

void swiglu_forward(const Context& context, const SwigluForward& args) {
  check_dtype(args.gate_up);
  check_dtype(args.out);
  const int64_t size = args.out.cols;
  ensure(args.gate_up.cols == 2 * size, "a row of SwiGLU is gate then up");
  for_rows(context.team, args.out.rows, size, [&](int64_t row) {
    for_chunks(size, [&](int64_t begin, int64_t count) {
      Chunk gate_buffer, up_buffer, out;
      const float* gate = read(args.gate_up, row, begin, count, gate_buffer.data());
      const float* up = read(args.gate_up, row, size + begin, count, up_buffer.data());
      for (int64_t i = 0; i < count; ++i) out[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
      narrow(out.data(), args.out, row, begin, count);
    });
  });
}

// With s = sigmoid(gate): d(gate s)/d(gate) = s (1 + gate (1 - s))
void swiglu_backward(const Context& context, const SwigluBackward& args) {
  check_dtype(args.gate_up);
  check_dtype(args.grad_out);
  check_dtype(args.grad_gate_up);
  const int64_t size = args.grad_out.cols;
  ensure(args.gate_up.cols == 2 * size && args.grad_gate_up.cols == 2 * size, "a row of SwiGLU is gate then up");
  for_rows(context.team, args.grad_out.rows, size, [&](int64_t row) {
    for_chunks(size, [&](int64_t begin, int64_t count) {
      Chunk gate_buffer, up_buffer, grad_buffer, grad_gate, grad_up, out;
      const float* gate = read(args.gate_up, row, begin, count, gate_buffer.data());
      const float* up = read(args.gate_up, row, size + begin, count, up_buffer.data());
      const float* grad = read(args.grad_out, row, begin, count, grad_buffer.data());
      for (int64_t i = 0; i < count; ++i) {
        const float e = exp_f32(-gate[i]);
        const float s = 1.0f / (1.0f + e);
        grad_gate[i] = grad[i] * up[i] * s * (1.0f + gate[i] * (e * s));
        grad_up[i] = grad[i] * (gate[i] * s);
        out[i] = gate[i] / (1.0f + e) * up[i];
      }
      if (!args.out.empty()) narrow(out.data(), args.out, row, begin, count);
      narrow(grad_gate.data(), args.grad_gate_up, row, begin, count);
      narrow(grad_up.data(), args.grad_gate_up, row, size + begin, count);
    });
  });
}

}  // namespace megatrain::cpu
