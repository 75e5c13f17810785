#include "megatrain/model/channels/mlp.h"

#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct Mlp::Work final : Channel::Work {
  Chunked gate_up;  // (2F)
  Chunked act;      // (F)
  View grad_act;    // (C, F)
};

Mlp::Mlp(Activation activation, DType dtype, const LinearTensors& from, double out_scale)
    : activation_(activation),
      dtype_(dtype),
      gate_up_(from, BlockOperand::gate_up, BlockOperand::gate_up_bias),
      down_(Linear(from, BlockOperand::down, BlockOperand::down_bias).times(out_scale)) {}

std::unique_ptr<Channel::Work> Mlp::carve(const Space& space) const {
  auto w = std::make_unique<Work>();
  w->gate_up = space.chunked(matmuls, dtype_, 2 * ff());
  w->act = space.chunked(everything, dtype_, ff());
  w->grad_act = space.work.view(dtype_, space.chunk, ff());
  return w;
}

void Mlp::forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
                  bool repeated) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View gate_up = w.gate_up.at(call.range), act = w.act.at(call.range);
  if (!repeated || reads_input_again(call.keep)) gate_up_.forward(at, x, {}, gate_up);
  at.ops.gated_forward(at.stream, {.gate_up = gate_up, .out = act, .activation = activation_});
  down_.forward(at, act, residual, y);
}

void Mlp::recompute(const Binding& at, const Call& call, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  if (call.keep < matmuls) gate_up_.forward(at, x, {}, w.gate_up.at(call.range));
}

void Mlp::recompute_output(const Binding& at, const Call& call, const View& /*x*/, const View& residual,
                           const View& y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View act = w.act.at(call.range);
  at.ops.gated_forward(at.stream, {.gate_up = w.gate_up.at(call.range), .out = act, .activation = activation_});
  down_.forward(at, act, residual, y);
}

void Mlp::backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                   bool output_made, bool add) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View gate_up = w.gate_up.at(call.range), act = w.act.at(call.range);
  const View grad_act = w.grad_act.slice_rows(0, call.range.count);
  const bool has_act = call.keep >= everything || output_made;
  down_.backward_input(at, grad_y, grad_act);
  at.ops.gated_backward(at.stream, {.gate_up = gate_up,
                                    .grad_out = grad_act,
                                    .grad_gate_up = gate_up,
                                    .out = has_act ? View{} : act,
                                    .activation = activation_});
  down_.backward_weight(at, grad_y, act);
  gate_up_.backward_weight(at, gate_up, x);
  gate_up_.backward_input(at, gate_up, grad_x, add);
}

std::unique_ptr<Channel::Work> Mlp::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->gate_up.view = carver.view(dtype_, tokens, 2 * ff());
  w->act.view = carver.view(dtype_, tokens, ff());
  return w;
}

void Mlp::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  gate_up_.forward(at, a.x, {}, w.gate_up.view);
  at.ops.gated_forward(at.stream, {.gate_up = w.gate_up.view, .out = w.act.view, .activation = activation_});
  down_.forward(at, w.act.view, a.residual, a.y);
}

}  // namespace megatrain
