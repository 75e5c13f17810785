#include "megatrain/model/layers/mixers/parallel_mlp.h"

#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct ParallelMlp::Work final : Mixer::Work {
  View gate_up;   // (T, 2F); in backward its gradient takes its place
  View act;       // (C, F); in generation (T, F)
  View grad_act;  // (C, F)
};

ParallelMlp::ParallelMlp(Activation activation, DType dtype, const LinearTensors& from)
    : activation_(activation),
      dtype_(dtype),
      gate_up_(from, BlockOperand::gate_up, BlockOperand::gate_up_bias),
      down_(from, BlockOperand::down, BlockOperand::down_bias) {}

std::vector<Mixer::Level> ParallelMlp::keep_levels() const {
  return {{.name = "outputs", .spared = "attention", .mixed = true, .may_wait = true},
          {.name = "attention", .spared = "attention", .mixed = true, .whole = true}};
}

std::unique_ptr<Mixer::Work> ParallelMlp::carve(const Space& space) const {
  constexpr int64_t kAttention = 2;  // keep_levels()
  auto w = std::make_unique<Work>();
  w->gate_up = space.at(kAttention).view(dtype_, space.tokens, gate_up_.out_width());
  w->act = space.work.view(dtype_, space.chunk, down_.in_width());
  w->grad_act = space.work.view(dtype_, space.chunk, down_.in_width());
  return w;
}

void ParallelMlp::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  gate_up_.forward(at, x, {}, static_cast<const Work&>(call.work).gate_up.slice_rows(range.begin, range.count));
}

void ParallelMlp::out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                      const View& y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View act = w.act.slice_rows(0, range.count);
  at.ops.gated_forward(at.stream, {.gate_up = w.gate_up.slice_rows(range.begin, range.count),
                                   .row_gate = {},
                                   .out = act,
                                   .activation = activation_});
  down_.forward(at, act, residual, y);
}

void ParallelMlp::out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View gate_up = w.gate_up.slice_rows(range.begin, range.count), act = w.act.slice_rows(0, range.count);
  const View grad_act = w.grad_act.slice_rows(0, range.count);
  down_.backward_input(at, grad_y, grad_act);
  at.ops.gated_backward(at.stream, {.gate_up = gate_up,
                                    .row_gate = {},
                                    .grad_out = grad_act,
                                    .grad_gate_up = gate_up,
                                    .grad_row_gate = {},
                                    .out = act,
                                    .activation = activation_});
  down_.backward_weight(at, grad_y, act);
}

void ParallelMlp::in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                              const View& grad_x, bool add) const {
  const View grad = static_cast<const Work&>(call.work).gate_up.slice_rows(range.begin, range.count);
  gate_up_.backward_weight(at, grad, x);
  gate_up_.backward_input(at, grad, grad_x, add);
}

std::unique_ptr<Mixer::Work> ParallelMlp::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->gate_up = carver.view(dtype_, tokens, gate_up_.out_width());
  w->act = carver.view(dtype_, tokens, down_.in_width());
  return w;
}

void ParallelMlp::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  gate_up_.forward(at, a.x, {}, w.gate_up);
  at.ops.gated_forward(at.stream, {.gate_up = w.gate_up, .row_gate = {}, .out = w.act, .activation = activation_});
  down_.forward(at, w.act, a.residual, a.y);
}

}  // namespace megatrain
