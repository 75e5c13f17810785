#include "megatrain/model/layers/channels/mlp.h"

#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct Mlp::Work final : Channel::Work {
  Chunked gate_up;     // (2F), or (F) without a gate
  Chunked row_gate;    // (1) only with a row gate
  Chunked act;         // (F) multiplied by the row gate
  View grad_act;       // (C, F)
  View grad_row_gate;  // (C, 1)
};

Mlp::Mlp(Activation activation, DType dtype, const LinearTensors& from, double out_scale, double in_scale)
    : activation_(activation),
      dtype_(dtype),
      gate_up_(Linear(from, BlockOperand::gate_up, BlockOperand::gate_up_bias).times(in_scale)),
      row_gate_(from, BlockOperand::row_gate),
      down_(Linear(from, BlockOperand::down, BlockOperand::down_bias).times(out_scale)) {}

std::unique_ptr<Channel::Work> Mlp::carve(const Space& space) const {
  auto w = std::make_unique<Work>();
  w->gate_up = space.chunked(matmuls, dtype_, gate_up_.out_width());
  w->act = space.chunked(everything, dtype_, ff());
  w->grad_act = space.work.view(dtype_, space.chunk, ff());
  if (has_row_gate()) {
    w->row_gate = space.chunked(matmuls, dtype_, 1);
    w->grad_row_gate = space.work.view(dtype_, space.chunk, 1);
  }
  return w;
}

void Mlp::project(const Binding& at, const View& x, const View& gate_up, const View& row_gate) const {
  gate_up_.forward(at, x, {}, gate_up);
  if (has_row_gate()) row_gate_.forward(at, x, {}, row_gate);
}

void Mlp::forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
                  bool repeated) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View gate_up = w.gate_up.at(call.range), row_gate = w.row_gate.at(call.range), act = w.act.at(call.range);
  if (!repeated || reads_input_again(call.keep)) project(at, x, gate_up, row_gate);
  at.ops.gated_forward(at.stream, {.gate_up = gate_up, .row_gate = row_gate, .out = act, .activation = activation_});
  down_.forward(at, act, residual, y);
}

void Mlp::recompute(const Binding& at, const Call& call, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  if (call.keep < matmuls) project(at, x, w.gate_up.at(call.range), w.row_gate.at(call.range));
}

void Mlp::recompute_output(const Binding& at, const Call& call, const View& /*x*/, const View& residual,
                           const View& y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View act = w.act.at(call.range);
  at.ops.gated_forward(at.stream, {.gate_up = w.gate_up.at(call.range),
                                   .row_gate = w.row_gate.at(call.range),
                                   .out = act,
                                   .activation = activation_});
  down_.forward(at, act, residual, y);
}

void Mlp::backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                   bool output_made, bool add) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View gate_up = w.gate_up.at(call.range), act = w.act.at(call.range);
  const View grad_act = w.grad_act.slice_rows(0, call.range.count);
  const View grad_row_gate = has_row_gate() ? w.grad_row_gate.slice_rows(0, call.range.count) : View{};
  const bool has_act = call.keep >= everything || output_made;
  down_.backward_input(at, grad_y, grad_act);
  at.ops.gated_backward(at.stream, {.gate_up = gate_up,
                                    .row_gate = w.row_gate.at(call.range),
                                    .grad_out = grad_act,
                                    .grad_gate_up = gate_up,
                                    .grad_row_gate = grad_row_gate,
                                    .out = has_act ? View{} : act,
                                    .activation = activation_});
  down_.backward_weight(at, grad_y, act);
  gate_up_.backward_weight(at, gate_up, x);
  gate_up_.backward_input(at, gate_up, grad_x, add);
  if (!has_row_gate()) return;
  row_gate_.backward_weight(at, grad_row_gate, x);
  row_gate_.backward_input(at, grad_row_gate, grad_x, true);
}

std::unique_ptr<Channel::Work> Mlp::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->gate_up.view = carver.view(dtype_, tokens, gate_up_.out_width());
  w->act.view = carver.view(dtype_, tokens, ff());
  if (has_row_gate()) w->row_gate.view = carver.view(dtype_, tokens, 1);
  return w;
}

void Mlp::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  project(at, a.x, w.gate_up.view, w.row_gate.view);
  at.ops.gated_forward(
      at.stream,
      {.gate_up = w.gate_up.view, .row_gate = w.row_gate.view, .out = w.act.view, .activation = activation_});
  down_.forward(at, w.act.view, a.residual, a.y);
}

}  // namespace megatrain
