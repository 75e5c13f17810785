#include "megatrain/model/layers/mixers/delta_net.h"

#include <utility>

#include "megatrain/base/math.h"

namespace megatrain {

struct DeltaNet::Work final : Mixer::Work {
  View by_key_head;     // (C, 2K + 2V + 2 value_heads) as the matmul has it, and its gradient; in generation (T, ...)
  View projected;       // (T, 2K + 2V + 2 value_heads) output of in()
  View convolved;       // (T, 2K + V)
  View g, beta;         // (T, value_heads) fp32
  View mixed;           // (T, V) the rule's output
  View normed;          // (C, V) what out() multiplies; in generation (T, V)
  View grad_normed;     // (C, V)
  View grad_mixed;      // (T, V)
  View grad_g;          // (T, value_heads) fp32
  View grad_beta;       // (T, value_heads) fp32
  View grad_convolved;  // (T, 2K + V)
  View grad_projected;  // as projected
};

DeltaRuleShape delta_rule_shape(const DeltaNetConfig& c, int64_t tokens) {
  return {.tokens = tokens,
          .key_heads = c.key_heads,
          .value_heads = c.value_heads,
          .key_dim = c.key_dim,
          .value_dim = c.value_dim};
}

DeltaNet::DeltaNet(const DeltaNetConfig& config, float norm_eps, DType dtype, const LinearTensors& from)
    : c_(config),
      eps_(norm_eps),
      dtype_(dtype),
      conv_(find_operand(from.record, DeltaOperand::conv)),
      a_log_(find_operand(from.record, DeltaOperand::a_log)),
      dt_bias_(find_operand(from.record, DeltaOperand::dt_bias)),
      norm_(find_operand(from.record, DeltaOperand::norm)),
      in_(from, DeltaOperand::in),
      out_(from, DeltaOperand::out) {}

std::vector<Mixer::Level> DeltaNet::keep_levels() const {
  return {{.name = "outputs", .spared = "the delta rule", .mixed = true, .may_wait = true},
          {.name = "projections", .spared = "the delta rule and its inputs", .mixed = true, .whole = true}};
}

std::unique_ptr<Mixer::Work> DeltaNet::carve(const Space& space) const {
  enum : int64_t { outputs = 1, projections };  // keep_levels()
  auto w = std::make_unique<Work>();
  if (c_.by_key_head) w->by_key_head = space.work.view(dtype_, space.chunk, in_.out_width());
  w->projected = space.at(projections).view(dtype_, space.tokens, in_.out_width());
  w->mixed = space.at(outputs).view(dtype_, space.tokens, value_width());
  w->convolved = space.work.view(dtype_, space.tokens, conv_width());
  w->g = space.work.view(DType::f32, space.tokens, c_.value_heads);
  w->beta = space.work.view(DType::f32, space.tokens, c_.value_heads);
  w->normed = space.work.view(dtype_, space.chunk, value_width());
  w->grad_normed = space.work.view(dtype_, space.chunk, value_width());
  w->grad_mixed = space.work.view(dtype_, space.tokens, value_width());
  w->grad_g = space.work.view(DType::f32, space.tokens, c_.value_heads);
  w->grad_beta = space.work.view(DType::f32, space.tokens, c_.value_heads);
  w->grad_convolved = space.work.view(dtype_, space.tokens, conv_width());
  w->grad_projected = space.work.view(dtype_, space.tokens, in_.out_width());
  return w;
}

DeltaNet::Parts DeltaNet::split(const View& projected) const {
  int64_t at = 0;
  const auto next = [&](int64_t cols) {
    at += cols;
    return projected.slice_cols(at - cols, cols);
  };
  Parts parts;
  parts.qkv = next(conv_width());
  parts.z = next(value_width());
  parts.b = next(c_.value_heads);
  parts.a = next(c_.value_heads);
  return parts;
}

DeltaNet::Heads DeltaNet::heads(const View& convolved) const {
  return {.q = convolved.slice_cols(0, key_width()),
          .k = convolved.slice_cols(key_width(), key_width()),
          .v = convolved.slice_cols(2 * key_width(), value_width())};
}

// Moves the columns from their order by key head into that of split(); their gradients the other way.
void DeltaNet::sort_columns(const Binding& at, const View& by_key_head, const View& projected, bool backward) const {
  const int64_t shared = c_.value_heads / c_.key_heads, values = shared * c_.value_dim;
  int64_t group = 2 * c_.key_dim + 2 * values, in_group = 0, sorted = 0;
  const auto move = [&](int64_t width) {
    MoveHeads heads{.from = by_key_head,
                    .to = projected,
                    .heads = c_.key_heads,
                    .width = width,
                    .from_begin = in_group,
                    .from_step = group,
                    .to_begin = sorted,
                    .to_step = width,
                    .backward = backward};
    if (backward) {
      std::swap(heads.from, heads.to);
      std::swap(heads.from_begin, heads.to_begin);
      std::swap(heads.from_step, heads.to_step);
    }
    at.ops.move_heads(at.stream, heads);
    in_group += width;
    sorted += c_.key_heads * width;
  };
  for (const int64_t width : {c_.key_dim, c_.key_dim, values, values}) move(width);  // q, k, v, z
  group = 2 * shared;
  in_group = sorted;                                         // behind all of them
  for (const int64_t width : {shared, shared}) move(width);  // b, a
}

// `by_key_head` is scratch for as many rows.
void DeltaNet::project(const Binding& at, const View& x, const View& by_key_head, const View& projected) const {
  if (!c_.by_key_head) return in_.forward(at, x, {}, projected);
  in_.forward(at, x, {}, by_key_head);
  sort_columns(at, by_key_head, projected, false);
}

void DeltaNet::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  project(at, x, w.by_key_head.slice_rows(0, range.count), w.projected.slice_rows(range.begin, range.count));
}

void DeltaNet::gate(const Binding& at, const Work& w, const View& projected) const {
  const Parts parts = split(projected);
  at.ops.delta_gates_forward(at.stream, {.a = parts.a,
                                         .b = parts.b,
                                         .a_log = a_log_.weight(at.weights),
                                         .dt_bias = dt_bias_.weight(at.weights),
                                         .g = w.g,
                                         .beta = w.beta});
}

void DeltaNet::mix(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Heads read = heads(w.convolved);
  at.ops.short_conv_forward(at.stream, {.documents = call.micro_batch.documents,
                                        .x = split(w.projected).qkv,
                                        .weight = conv_.weight(at.weights),
                                        .out = w.convolved});
  gate(at, w, w.projected);
  at.ops.delta_rule_forward(at.stream, {.shape = delta_rule_shape(c_, call.micro_batch.tokens),
                                        .documents = call.micro_batch.documents,
                                        .q = read.q,
                                        .k = read.k,
                                        .v = read.v,
                                        .g = w.g,
                                        .beta = w.beta,
                                        .out = w.mixed});
}

// norm(mixed) silu(z)
View DeltaNet::normed(const Binding& at, const Work& w, const TokenRange& range) const {
  const View result = w.normed.slice_rows(0, range.count);
  at.ops.gated_norm_forward(at.stream, {.x = w.mixed.slice_rows(range.begin, range.count),
                                        .z = split(w.projected.slice_rows(range.begin, range.count)).z,
                                        .weight = norm_.weight(at.weights),
                                        .eps = eps_,
                                        .out = result});
  return result;
}

void DeltaNet::out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                   const View& y) const {
  out_.forward(at, normed(at, static_cast<const Work&>(call.work), range), residual, y);
}

void DeltaNet::out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  const View grad_normed = w.grad_normed.slice_rows(0, range.count);
  out_.backward_weight(at, grad_y, normed(at, w, range));
  out_.backward_input(at, grad_y, grad_normed);
  at.ops.gated_norm_backward(at.stream, {.x = rows(w.mixed),
                                         .z = split(rows(w.projected)).z,
                                         .weight = norm_.weight(at.weights),
                                         .eps = eps_,
                                         .grad_out = grad_normed,
                                         .grad_x = rows(w.grad_mixed),
                                         .grad_z = split(rows(w.grad_projected)).z,
                                         .grad_weight = norm_.gradient(at.gradients),
                                         .accumulate = at.accumulate});
}

void DeltaNet::mix_backward(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Documents& documents = call.micro_batch.documents;
  const Heads read = heads(w.convolved), grad = heads(w.grad_convolved);
  const Parts parts = split(w.projected), grads = split(w.grad_projected);
  at.ops.short_conv_forward(
      at.stream, {.documents = documents, .x = parts.qkv, .weight = conv_.weight(at.weights), .out = w.convolved});
  gate(at, w, w.projected);
  at.ops.delta_rule_backward(at.stream, {.shape = delta_rule_shape(c_, call.micro_batch.tokens),
                                         .documents = documents,
                                         .q = read.q,
                                         .k = read.k,
                                         .v = read.v,
                                         .g = w.g,
                                         .beta = w.beta,
                                         .grad_out = w.grad_mixed,
                                         .grad_q = grad.q,
                                         .grad_k = grad.k,
                                         .grad_v = grad.v,
                                         .grad_g = w.grad_g,
                                         .grad_beta = w.grad_beta});
  at.ops.delta_gates_backward(at.stream, {.a = parts.a,
                                          .b = parts.b,
                                          .a_log = a_log_.weight(at.weights),
                                          .dt_bias = dt_bias_.weight(at.weights),
                                          .grad_g = w.grad_g,
                                          .grad_beta = w.grad_beta,
                                          .grad_a = grads.a,
                                          .grad_b = grads.b,
                                          .grad_a_log = a_log_.gradient(at.gradients),
                                          .grad_dt_bias = dt_bias_.gradient(at.gradients),
                                          .accumulate = at.accumulate});
  at.ops.short_conv_backward(at.stream, {.documents = documents,
                                         .x = parts.qkv,
                                         .weight = conv_.weight(at.weights),
                                         .grad_out = w.grad_convolved,
                                         .grad_x = grads.qkv,
                                         .grad_weight = conv_.gradient(at.gradients),
                                         .accumulate = at.accumulate});
}

void DeltaNet::in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                           const View& grad_x, bool add) const {
  const Work& w = static_cast<const Work&>(call.work);
  View grad = w.grad_projected.slice_rows(range.begin, range.count);
  if (c_.by_key_head) {
    const View as_weights = w.by_key_head.slice_rows(0, range.count);
    sort_columns(at, as_weights, grad, true);
    grad = as_weights;
  }
  in_.backward_weight(at, grad, x);
  in_.backward_input(at, grad, grad_x, add);
}

int64_t DeltaNet::state_bytes(int64_t sequences) const {
  return round_up(sequences * c_.value_heads * c_.key_dim * c_.value_dim * dtype_bytes(DType::f32), 256);
}

int64_t DeltaNet::cache_bytes(int64_t sequences, int64_t /*context*/) const {
  return state_bytes(sequences) + round_up(sequences * (c_.taps - 1) * conv_width() * dtype_bytes(dtype_), 256);
}

std::unique_ptr<Mixer::Work> DeltaNet::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  if (c_.by_key_head) w->by_key_head = carver.view(dtype_, tokens, in_.out_width());
  w->projected = carver.view(dtype_, tokens, in_.out_width());
  w->convolved = carver.view(dtype_, tokens, conv_width());
  w->g = carver.view(DType::f32, tokens, c_.value_heads);
  w->beta = carver.view(DType::f32, tokens, c_.value_heads);
  w->mixed = carver.view(dtype_, tokens, value_width());
  w->normed = carver.view(dtype_, tokens, value_width());
  return w;
}

void DeltaNet::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  const int64_t sequences = a.cache.sequences, state_rows = sequences * c_.value_heads * c_.key_dim;
  const Heads read = heads(w.convolved);
  project(at, a.x, w.by_key_head, w.projected);
  at.ops.short_conv_cached(at.stream, {.sequences = a.tokens.sequences,
                                       .positions = a.tokens.positions,
                                       .x = split(w.projected).qkv,
                                       .weight = conv_.weight(at.weights),
                                       .window = matrix(a.cache.bytes + state_bytes(sequences), dtype_,
                                                        sequences * (c_.taps - 1), conv_width()),
                                       .out = w.convolved});
  gate(at, w, w.projected);
  at.ops.delta_rule_cached(at.stream, {.shape = delta_rule_shape(c_, a.tokens.tokens),
                                       .sequences = a.tokens.sequences,
                                       .positions = a.tokens.positions,
                                       .q = read.q,
                                       .k = read.k,
                                       .v = read.v,
                                       .g = w.g,
                                       .beta = w.beta,
                                       .state = matrix(a.cache.bytes, DType::f32, state_rows, c_.value_dim),
                                       .out = w.mixed});
  out_.forward(at, normed(at, w, {0, a.tokens.tokens}), a.residual, a.y);
}

}  // namespace megatrain
