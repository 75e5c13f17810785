#include "megatrain/model/layers/mixers/mamba2.h"

#include "megatrain/base/math.h"
#include "megatrain/ops/ssd_gates.h"

namespace megatrain {

struct Mamba2::Work final : Mixer::Work {
  View projected;       // (T, 2V + 2S + heads) output of in()
  View convolved;       // (T, V + 2S)
  View step, g;         // (T, heads) fp32
  View mixed;           // (T, V) the recurrence's output
  View normed;          // (C, V) what out() multiplies; in generation (T, V)
  View grad_normed;     // (C, V)
  View grad_mixed;      // (T, V)
  View grad_step;       // (T, heads) fp32
  View grad_g;          // (T, heads) fp32
  View grad_convolved;  // (T, V + 2S)
  View grad_projected;  // as projected
};

SsdShape ssd_shape(const Mamba2Config& c, int64_t tokens) {
  return {.tokens = tokens, .heads = c.heads, .groups = c.groups, .head_dim = c.head_dim, .state_dim = c.state_dim};
}

Mamba2::Mamba2(const Sizes& sizes, const LinearTensors& from)
    : c_(sizes.config),
      eps_(sizes.norm_eps),
      dtype_(sizes.dtype),
      conv_(find_operand(from.record, Mamba2Operand::conv)),
      conv_bias_(find_operand(from.record, Mamba2Operand::conv_bias)),
      dt_bias_(find_operand(from.record, Mamba2Operand::dt_bias)),
      a_log_(find_operand(from.record, Mamba2Operand::a_log)),
      skip_(find_operand(from.record, Mamba2Operand::skip)),
      norm_(find_operand(from.record, Mamba2Operand::norm)),
      in_(from, Mamba2Operand::in, Mamba2Operand::in_bias),
      out_(Linear(from, Mamba2Operand::out, Mamba2Operand::out_bias).times(sizes.out_scale)) {}

std::vector<Mixer::Level> Mamba2::keep_levels() const {
  return {{.name = "outputs", .spared = "the recurrence", .mixed = true, .may_wait = true},
          {.name = "projections", .spared = "the recurrence and its inputs", .mixed = true, .whole = true}};
}

std::unique_ptr<Mixer::Work> Mamba2::carve(const Space& space) const {
  enum : int64_t { outputs = 1, projections };  // keep_levels()
  auto w = std::make_unique<Work>();
  w->projected = space.at(projections).view(dtype_, space.tokens, in_.out_width());
  w->mixed = space.at(outputs).view(dtype_, space.tokens, width());
  w->convolved = space.work.view(dtype_, space.tokens, conv_width());
  w->step = space.work.view(DType::f32, space.tokens, c_.heads);
  w->g = space.work.view(DType::f32, space.tokens, c_.heads);
  w->normed = space.work.view(dtype_, space.chunk, width());
  w->grad_normed = space.work.view(dtype_, space.chunk, width());
  w->grad_mixed = space.work.view(dtype_, space.tokens, width());
  w->grad_step = space.work.view(DType::f32, space.tokens, c_.heads);
  w->grad_g = space.work.view(DType::f32, space.tokens, c_.heads);
  w->grad_convolved = space.work.view(dtype_, space.tokens, conv_width());
  w->grad_projected = space.work.view(dtype_, space.tokens, in_.out_width());
  return w;
}

Mamba2::Parts Mamba2::split(const View& projected) const {
  return {.z = projected.slice_cols(0, width()),
          .xbc = projected.slice_cols(width(), conv_width()),
          .dt = projected.slice_cols(width() + conv_width(), c_.heads)};
}

Mamba2::Inputs Mamba2::inputs(const View& convolved) const {
  return {.x = convolved.slice_cols(0, width()),
          .b = convolved.slice_cols(width(), state_width()),
          .c = convolved.slice_cols(width() + state_width(), state_width())};
}

// Multiplies the parts of what in_ has made, or of its gradient.
void Mamba2::scale(const Binding& at, const View& projected) const {
  const Parts parts = split(projected);
  const Inputs xbc = inputs(parts.xbc);
  const std::array<View, 5> views = {parts.z, xbc.x, xbc.b, xbc.c, parts.dt};
  for (size_t i = 0; i < views.size(); ++i) {
    if (c_.scales[i] != 1)
      at.ops.scale_all(at.stream,
                       {.x = views[i], .factor = {}, .times = static_cast<float>(c_.scales[i]), .out = views[i]});
  }
}

void Mamba2::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  const View projected = static_cast<const Work&>(call.work).projected.slice_rows(range.begin, range.count);
  in_.forward(at, x, {}, projected);
  scale(at, projected);
}

void Mamba2::convolve(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  at.ops.short_conv_forward(at.stream, {.documents = call.micro_batch.documents,
                                        .x = split(w.projected).xbc,
                                        .weight = conv_.weight(at.weights),
                                        .bias = conv_bias_.weight(at.weights),
                                        .out = w.convolved});
}

void Mamba2::gate(const Binding& at, const Work& w) const {
  at.ops.ssd_gates_forward(at.stream, {.dt = split(w.projected).dt,
                                       .a_log = a_log_.weight(at.weights),
                                       .dt_bias = dt_bias_.weight(at.weights),
                                       .limits = limits(),
                                       .step = w.step,
                                       .g = w.g});
}

void Mamba2::mix(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Inputs read = inputs(w.convolved);
  convolve(at, call);
  gate(at, w);
  at.ops.ssd_forward(at.stream, {.shape = ssd_shape(c_, call.micro_batch.tokens),
                                 .documents = call.micro_batch.documents,
                                 .x = read.x,
                                 .b = read.b,
                                 .c = read.c,
                                 .step = w.step,
                                 .g = w.g,
                                 .skip = skip_.weight(at.weights),
                                 .out = w.mixed});
}

// norm(mixed silu(z))
View Mamba2::normed(const Binding& at, const Work& w, const TokenRange& range) const {
  const View result = w.normed.slice_rows(0, range.count);
  if (!c_.normed) {
    at.ops.output_gate_forward(at.stream, {.x = w.mixed.slice_rows(range.begin, range.count),
                                           .gate = split(w.projected.slice_rows(range.begin, range.count)).z,
                                           .out = result,
                                           .form = GateForm::silu});
    return result;
  }
  at.ops.gated_norm_forward(at.stream, {.x = w.mixed.slice_rows(range.begin, range.count),
                                        .z = split(w.projected.slice_rows(range.begin, range.count)).z,
                                        .weight = norm_.weight(at.weights),
                                        .eps = eps_,
                                        .group = width() / c_.groups,
                                        .gate_first = c_.gate_first,
                                        .out = result});
  return result;
}

void Mamba2::out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                 const View& y) const {
  out_.forward(at, normed(at, static_cast<const Work&>(call.work), range), residual, y);
}

void Mamba2::out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  const View grad_normed = w.grad_normed.slice_rows(0, range.count);
  out_.backward_weight(at, grad_y, normed(at, w, range));
  out_.backward_input(at, grad_y, grad_normed);
  if (!c_.normed) {
    at.ops.output_gate_backward(at.stream, {.x = rows(w.mixed),
                                            .gate = split(rows(w.projected)).z,
                                            .grad_out = grad_normed,
                                            .grad_x = rows(w.grad_mixed),
                                            .grad_gate = split(rows(w.grad_projected)).z,
                                            .form = GateForm::silu});
    return;
  }
  at.ops.gated_norm_backward(at.stream, {.x = rows(w.mixed),
                                         .z = split(rows(w.projected)).z,
                                         .weight = norm_.weight(at.weights),
                                         .eps = eps_,
                                         .group = width() / c_.groups,
                                         .gate_first = c_.gate_first,
                                         .grad_out = grad_normed,
                                         .grad_x = rows(w.grad_mixed),
                                         .grad_z = split(rows(w.grad_projected)).z,
                                         .grad_weight = norm_.gradient(at.gradients),
                                         .accumulate = at.accumulate});
}

void Mamba2::mix_backward(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Documents& documents = call.micro_batch.documents;
  const Inputs read = inputs(w.convolved), grad = inputs(w.grad_convolved);
  const Parts parts = split(w.projected), grads = split(w.grad_projected);
  convolve(at, call);
  gate(at, w);
  at.ops.ssd_backward(at.stream, {.shape = ssd_shape(c_, call.micro_batch.tokens),
                                  .documents = documents,
                                  .x = read.x,
                                  .b = read.b,
                                  .c = read.c,
                                  .step = w.step,
                                  .g = w.g,
                                  .skip = skip_.weight(at.weights),
                                  .grad_out = w.grad_mixed,
                                  .grad_x = grad.x,
                                  .grad_b = grad.b,
                                  .grad_c = grad.c,
                                  .grad_step = w.grad_step,
                                  .grad_g = w.grad_g,
                                  .grad_skip = skip_.gradient(at.gradients),
                                  .accumulate = at.accumulate});
  at.ops.ssd_gates_backward(at.stream, {.dt = parts.dt,
                                        .a_log = a_log_.weight(at.weights),
                                        .dt_bias = dt_bias_.weight(at.weights),
                                        .limits = limits(),
                                        .grad_step = w.grad_step,
                                        .grad_g = w.grad_g,
                                        .grad_dt = grads.dt,
                                        .grad_a_log = a_log_.gradient(at.gradients),
                                        .grad_dt_bias = dt_bias_.gradient(at.gradients),
                                        .accumulate = at.accumulate});
  at.ops.short_conv_backward(at.stream, {.documents = documents,
                                         .x = parts.xbc,
                                         .weight = conv_.weight(at.weights),
                                         .bias = conv_bias_.weight(at.weights),
                                         .grad_out = w.grad_convolved,
                                         .grad_x = grads.xbc,
                                         .grad_weight = conv_.gradient(at.gradients),
                                         .grad_bias = conv_bias_.gradient(at.gradients),
                                         .accumulate = at.accumulate});
}

void Mamba2::in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                         const View& grad_x, bool add) const {
  const View grad = static_cast<const Work&>(call.work).grad_projected.slice_rows(range.begin, range.count);
  scale(at, grad);
  in_.backward_weight(at, grad, x);
  in_.backward_input(at, grad, grad_x, add);
}

int64_t Mamba2::state_bytes(int64_t sequences) const {
  return round_up(sequences * c_.heads * c_.state_dim * c_.head_dim * dtype_bytes(DType::f32), 256);
}

int64_t Mamba2::cache_bytes(int64_t sequences, int64_t /*context*/) const {
  return state_bytes(sequences) + round_up(sequences * (c_.taps - 1) * conv_width() * dtype_bytes(dtype_), 256);
}

std::unique_ptr<Mixer::Work> Mamba2::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->projected = carver.view(dtype_, tokens, in_.out_width());
  w->convolved = carver.view(dtype_, tokens, conv_width());
  w->step = carver.view(DType::f32, tokens, c_.heads);
  w->g = carver.view(DType::f32, tokens, c_.heads);
  w->mixed = carver.view(dtype_, tokens, width());
  w->normed = carver.view(dtype_, tokens, width());
  return w;
}

void Mamba2::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  const int64_t sequences = a.cache.sequences, state_rows = sequences * c_.heads * c_.state_dim;
  const Inputs read = inputs(w.convolved);
  in_.forward(at, a.x, {}, w.projected);
  scale(at, w.projected);
  at.ops.short_conv_cached(at.stream, {.sequences = a.tokens.sequences,
                                       .positions = a.tokens.positions,
                                       .x = split(w.projected).xbc,
                                       .weight = conv_.weight(at.weights),
                                       .bias = conv_bias_.weight(at.weights),
                                       .window = matrix(a.cache.bytes + state_bytes(sequences), dtype_,
                                                        sequences * (c_.taps - 1), conv_width()),
                                       .out = w.convolved});
  gate(at, w);
  at.ops.ssd_cached(at.stream, {.shape = ssd_shape(c_, a.tokens.tokens),
                                .sequences = a.tokens.sequences,
                                .positions = a.tokens.positions,
                                .x = read.x,
                                .b = read.b,
                                .c = read.c,
                                .step = w.step,
                                .g = w.g,
                                .skip = skip_.weight(at.weights),
                                .state = matrix(a.cache.bytes, DType::f32, state_rows, c_.head_dim),
                                .out = w.mixed});
  out_.forward(at, normed(at, w, {0, a.tokens.tokens}), a.residual, a.y);
}

}  // namespace megatrain
