#include "megatrain/model/layers/mixers/gated_conv.h"

#include "megatrain/base/math.h"

namespace megatrain {

struct GatedConv::Work final : Mixer::Work {
  View projected;       // (T, 3H) output of in()
  View inputs;          // (T, H) b * v
  View mixed;           // (T, H) the convolution's output
  View gated;           // (C, H) what out() multiplies; in generation (T, H)
  View grad_gated;      // (C, H)
  View grad_mixed;      // (T, H)
  View grad_inputs;     // (T, H)
  View grad_projected;  // (T, 3H)
};

GatedConv::GatedConv(const GatedConvConfig& config, DType dtype, const LinearTensors& from)
    : taps_(config.taps),
      dtype_(dtype),
      conv_(find_operand(from.record, GatedConvOperand::conv)),
      conv_bias_(find_operand(from.record, GatedConvOperand::conv_bias)),
      in_(from, GatedConvOperand::in, GatedConvOperand::in_bias),
      out_(from, GatedConvOperand::out, GatedConvOperand::out_bias) {}

std::vector<Mixer::Level> GatedConv::keep_levels() const {
  return {{.name = "outputs", .spared = "the convolution", .mixed = true, .may_wait = true},
          {.name = "projections", .spared = "the convolution and its inputs", .mixed = true, .whole = true}};
}

std::unique_ptr<Mixer::Work> GatedConv::carve(const Space& space) const {
  enum : int64_t { outputs = 1, projections };  // keep_levels()
  auto w = std::make_unique<Work>();
  const auto all = [&](Carver& carver) { return carver.view(dtype_, space.tokens, width()); };
  w->projected = space.at(projections).view(dtype_, space.tokens, 3 * width());
  w->mixed = all(space.at(outputs));
  w->inputs = all(space.work);
  w->gated = space.work.view(dtype_, space.chunk, width());
  w->grad_gated = space.work.view(dtype_, space.chunk, width());
  w->grad_mixed = all(space.work);
  w->grad_inputs = all(space.work);
  w->grad_projected = space.work.view(dtype_, space.tokens, 3 * width());
  return w;
}

GatedConv::Parts GatedConv::split(const View& projected) const {
  return {.b = projected.slice_cols(0, width()),
          .c = projected.slice_cols(width(), width()),
          .v = projected.slice_cols(2 * width(), width())};
}

void GatedConv::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  in_.forward(at, x, {}, w.projected.slice_rows(range.begin, range.count));
}

void GatedConv::mix(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Parts parts = split(w.projected);
  at.ops.output_gate_forward(at.stream, {.x = parts.v, .gate = parts.b, .out = w.inputs, .form = GateForm::plain});
  at.ops.short_conv_forward(at.stream, {.documents = call.micro_batch.documents,
                                        .x = w.inputs,
                                        .weight = conv_.weight(at.weights),
                                        .bias = conv_bias_.weight(at.weights),
                                        .out = w.mixed,
                                        .silu = false});
}

// c * mixed
View GatedConv::gated(const Binding& at, const Work& w, const TokenRange& range) const {
  const View result = w.gated.slice_rows(0, range.count);
  at.ops.output_gate_forward(at.stream, {.x = w.mixed.slice_rows(range.begin, range.count),
                                         .gate = split(w.projected.slice_rows(range.begin, range.count)).c,
                                         .out = result,
                                         .form = GateForm::plain});
  return result;
}

void GatedConv::out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                    const View& y) const {
  out_.forward(at, gated(at, static_cast<const Work&>(call.work), range), residual, y);
}

void GatedConv::out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  const View grad_gated = w.grad_gated.slice_rows(0, range.count);
  out_.backward_weight(at, grad_y, gated(at, w, range));
  out_.backward_input(at, grad_y, grad_gated);
  at.ops.output_gate_backward(at.stream, {.x = rows(w.mixed),
                                          .gate = split(rows(w.projected)).c,
                                          .grad_out = grad_gated,
                                          .grad_x = rows(w.grad_mixed),
                                          .grad_gate = split(rows(w.grad_projected)).c,
                                          .form = GateForm::plain});
}

void GatedConv::mix_backward(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Parts parts = split(w.projected), grads = split(w.grad_projected);
  at.ops.output_gate_forward(at.stream, {.x = parts.v, .gate = parts.b, .out = w.inputs, .form = GateForm::plain});
  at.ops.short_conv_backward(at.stream, {.documents = call.micro_batch.documents,
                                         .x = w.inputs,
                                         .weight = conv_.weight(at.weights),
                                         .bias = conv_bias_.weight(at.weights),
                                         .grad_out = w.grad_mixed,
                                         .grad_x = w.grad_inputs,
                                         .grad_weight = conv_.gradient(at.gradients),
                                         .grad_bias = conv_bias_.gradient(at.gradients),
                                         .accumulate = at.accumulate,
                                         .silu = false});
  at.ops.output_gate_backward(at.stream, {.x = parts.v,
                                          .gate = parts.b,
                                          .grad_out = w.grad_inputs,
                                          .grad_x = grads.v,
                                          .grad_gate = grads.b,
                                          .form = GateForm::plain});
}

void GatedConv::in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                            const View& grad_x, bool add) const {
  const View grad = static_cast<const Work&>(call.work).grad_projected.slice_rows(range.begin, range.count);
  in_.backward_weight(at, grad, x);
  in_.backward_input(at, grad, grad_x, add);
}

int64_t GatedConv::cache_bytes(int64_t sequences, int64_t /*context*/) const {
  return round_up(sequences * (taps_ - 1) * width() * dtype_bytes(dtype_), 256);
}

std::unique_ptr<Mixer::Work> GatedConv::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->projected = carver.view(dtype_, tokens, 3 * width());
  w->inputs = carver.view(dtype_, tokens, width());
  w->mixed = carver.view(dtype_, tokens, width());
  w->gated = carver.view(dtype_, tokens, width());
  return w;
}

void GatedConv::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  in_.forward(at, a.x, {}, w.projected);
  const Parts parts = split(w.projected);
  at.ops.output_gate_forward(at.stream, {.x = parts.v, .gate = parts.b, .out = w.inputs, .form = GateForm::plain});
  at.ops.short_conv_cached(at.stream,
                           {.sequences = a.tokens.sequences,
                            .positions = a.tokens.positions,
                            .x = w.inputs,
                            .weight = conv_.weight(at.weights),
                            .bias = conv_bias_.weight(at.weights),
                            .window = matrix(a.cache.bytes, dtype_, a.cache.sequences * (taps_ - 1), width()),
                            .out = w.mixed,
                            .silu = false});
  out_.forward(at, gated(at, w, {0, a.tokens.tokens}), a.residual, a.y);
}

}  // namespace megatrain
