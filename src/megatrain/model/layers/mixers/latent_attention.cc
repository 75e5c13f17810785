#include "megatrain/model/layers/mixers/latent_attention.h"

#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"

namespace megatrain {

namespace {

constexpr NormShape kNorm{.eps = 1e-6f};  // whatever config.json says of the model's other norms

}  // namespace

// C: the tokens of a range. In generation there are no gradients, and the inverse RMS values are never read.
struct LatentAttention::Work final : Mixer::Work {
  View down;                    // (T, down) with the rotated r
  float* q_inv_rms{};           // (T)
  float* kv_inv_rms{};          // (T)
  View q, k, v;                 // (T, keys) as attention reads them; without a q_rank, q is a part of `down`
  View attended;                // (T, keys)
  float* lse{};                 // (heads * T)
  View normed_q;                // (C, q_rank)
  View normed_latent;           // (C, kv_rank)
  View kv;                      // (C, up_kv), and its gradient
  View narrow;                  // (C, values) o's input, and its gradient; only with padded values
  View grad_attended;           // (T, keys)
  View grad_q, grad_k, grad_v;  // (T, keys)
  View grad_down;               // (T, down)
};

LatentSizes latent_sizes(const ModelConfig& config, const ModelShape& shape) {
  return {.of = config.latent,
          .heads = config.heads,
          .scale = static_cast<float>(config.attention_scale),
          .dtype = shape.dtype,
          .positions = shape.positions,
          .rope = config.rope};
}

LatentAttention::LatentAttention(const LatentSizes& sizes, const LinearTensors& from)
    : s_(sizes),
      q_norm_(from.record, LatentOperand::q_norm, kNorm),
      kv_norm_(from.record, LatentOperand::kv_norm, kNorm),
      down_(from, LatentOperand::down, LatentOperand::down_bias),
      up_q_(from, LatentOperand::up_q),
      up_kv_(from, LatentOperand::up_kv),
      o_(from, BlockOperand::o, BlockOperand::o_bias) {
  ensure(q_norm_.exists() == (s_.of.q_rank > 0), "narrow queries are normalised");
}

std::vector<Mixer::Level> LatentAttention::keep_levels() const {
  return {{.name = "outputs", .spared = "attention", .mixed = true, .may_wait = true},
          {.name = "attention", .spared = "attention", .mixed = true, .whole = true}};
}

std::unique_ptr<Mixer::Work> LatentAttention::carve(const Space& space) const {
  enum : int64_t { outputs = 1, attention };  // keep_levels()
  auto w = std::make_unique<Work>();
  const auto rows = [&](Carver& carver, int64_t width) { return carver.view(s_.dtype, space.tokens, width); };
  const auto range = [&](int64_t width) { return space.work.view(s_.dtype, space.chunk, width); };
  Carver& inner = space.at(attention);
  w->down = rows(inner, s_.down());
  if (q_norm_.exists()) w->q_inv_rms = inner.array<float>(space.tokens);
  w->kv_inv_rms = inner.array<float>(space.tokens);
  w->q = q_norm_.exists() ? rows(inner, s_.keys()) : w->down.slice_cols(0, s_.keys());
  w->k = rows(inner, s_.keys());
  w->v = rows(inner, s_.keys());
  w->attended = rows(space.at(outputs), s_.keys());
  w->lse = space.at(outputs).array<float>(space.tokens * s_.heads);
  if (q_norm_.exists()) w->normed_q = range(s_.of.q_rank);
  w->normed_latent = range(s_.of.kv_rank);
  w->kv = range(s_.up_kv());
  if (s_.padded()) w->narrow = range(s_.values());
  w->grad_attended = rows(space.work, s_.keys());
  w->grad_down = rows(space.work, s_.down());
  w->grad_q = q_norm_.exists() ? rows(space.work, s_.keys()) : w->grad_down.slice_cols(0, s_.keys());
  w->grad_k = rows(space.work, s_.keys());
  w->grad_v = rows(space.work, s_.keys());
  return w;
}

AttentionShape LatentAttention::shape(int64_t tokens) const {
  return {.tokens = tokens, .heads = s_.heads, .kv_heads = s_.heads, .head_dim = s_.head(), .scale = s_.scale};
}

struct LatentAttention::Turn {
  const int32_t* angles;  // (C) rows of the tables
  const float* tables;
};

// Rotates the first `width` elements of each head of `head` elements. The table of sin lies behind that of cos.
struct LatentAttention::Rotate {
  View heads;
  int64_t count, head, width;
  const float* cos;
};

void LatentAttention::rope(const Binding& at, const Rotate& a, const int32_t* angles, bool backward) const {
  at.ops.rope(at.stream, {.x = a.heads,
                          .heads = a.count,
                          .head_dim = a.head,
                          .rotary_dim = a.width,
                          .pairs = s_.of.pairs,
                          .positions = angles,
                          .cos = a.cos,
                          .sin = a.cos + rope_rows(s_.rope, s_.positions) * a.width / 2,
                          .backward = backward});
}

void LatentAttention::rope_key(const Binding& at, const View& down, const Turn& turn, bool backward) const {
  rope(at, {shared_key(down), 1, s_.of.turning, s_.of.turning, turn.tables}, turn.angles, backward);
}

// The elements that turn are the last of each head. Seen from there, they are the first of heads whose others are those
// that follow; only they are touched, so the last head may reach past the row.
void LatentAttention::rope_queries(const Binding& at, const View& q, const Turn& turn, bool backward) const {
  const int64_t cos_and_sin = rope_rows(s_.rope, s_.positions) * s_.of.turning;
  const bool grows = s_.rope.query_growth > 0;
  const float* cos = turn.tables + (grows ? cos_and_sin : 0);
  View from = q;
  from.data = q.slice_cols(s_.of.plain, s_.of.turning).data;
  rope(at, {from, s_.heads, s_.head(), s_.of.turning, cos}, turn.angles, backward);
  if (grows) rope(at, {q, s_.heads, s_.head(), s_.of.plain, cos + cos_and_sin}, turn.angles, backward);
}

struct LatentAttention::Project {
  View x;              // (C, H) normalised
  View down;           // (C, down) out
  View normed_q;       // (C, q_rank) out
  View normed_latent;  // (C, kv_rank) out
  View kv;             // (C, up_kv) out
  View q, k, v;        // (C, keys) out
  float* q_inv_rms;    // (C) out
  float* kv_inv_rms;   // (C) out
  Turn turn;
};

void LatentAttention::project(const Binding& at, const Project& a) const {
  down_.forward(at, a.x, {}, a.down);
  if (q_norm_.exists()) {
    q_norm_.forward(at, a.down.slice_cols(0, s_.of.q_rank), a.normed_q, a.q_inv_rms);
    up_q_.forward(at, a.normed_q, {}, a.q);
  }
  kv_norm_.forward(at, latent(a.down), a.normed_latent, a.kv_inv_rms);
  up_kv_.forward(at, a.normed_latent, {}, a.kv);
  rope_queries(at, a.q, a.turn, false);
  rope_key(at, a.down, a.turn, false);
  const int64_t both = s_.of.plain + s_.of.value, head = s_.head();
  move(at, {.from = a.kv, .to = a.k, .heads = s_.heads, .width = s_.of.plain, .from_step = both, .to_step = head});
  move(at, {.from = shared_key(a.down),
            .to = a.k,
            .heads = s_.heads,
            .width = s_.of.turning,
            .to_begin = s_.of.plain,
            .to_step = head});
  move(at, {.from = a.kv,
            .to = a.v,
            .heads = s_.heads,
            .width = s_.of.value,
            .from_begin = s_.of.plain,
            .from_step = both,
            .to_step = head,
            .zeros = head - s_.of.value});
}

void LatentAttention::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  project(at, {.x = x,
               .down = rows(w.down),
               .normed_q = w.normed_q.slice_rows(0, range.count),
               .normed_latent = w.normed_latent.slice_rows(0, range.count),
               .kv = w.kv.slice_rows(0, range.count),
               .q = rows(w.q),
               .k = rows(w.k),
               .v = rows(w.v),
               .q_inv_rms = q_norm_.exists() ? w.q_inv_rms + range.begin : nullptr,
               .kv_inv_rms = w.kv_inv_rms + range.begin,
               .turn = {call.micro_batch.positions + range.begin, call.tables}});
}

void LatentAttention::mix(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  at.ops.attention_forward(at.stream, {.shape = shape(call.micro_batch.tokens),
                                       .documents = call.micro_batch.documents,
                                       .q = w.q,
                                       .k = w.k,
                                       .v = w.v,
                                       .out = w.attended,
                                       .lse = w.lse});
}

// o's input for the tokens of a range.
View LatentAttention::outputs(const Binding& at, const Work& w, const TokenRange& range) const {
  const View attended = w.attended.slice_rows(range.begin, range.count);
  if (!s_.padded()) return attended;
  const View narrow = w.narrow.slice_rows(0, range.count);
  move(at, {.from = attended,
            .to = narrow,
            .heads = s_.heads,
            .width = s_.of.value,
            .from_step = s_.head(),
            .to_step = s_.of.value});
  return narrow;
}

void LatentAttention::out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                          const View& y) const {
  o_.forward(at, outputs(at, static_cast<const Work&>(call.work), range), residual, y);
}

void LatentAttention::out_backward(const Binding& at, const Call& call, const TokenRange& range,
                                   const View& grad_y) const {
  const Work& w = static_cast<const Work&>(call.work);
  o_.backward_weight(at, grad_y, outputs(at, w, range));
  const View grad = w.grad_attended.slice_rows(range.begin, range.count);
  if (!s_.padded()) return o_.backward_input(at, grad_y, grad);
  const View narrow = w.narrow.slice_rows(0, range.count);
  o_.backward_input(at, grad_y, narrow);
  move(at, {.from = narrow,
            .to = grad,
            .heads = s_.heads,
            .width = s_.of.value,
            .from_step = s_.of.value,
            .to_step = s_.head(),
            .zeros = s_.head() - s_.of.value,
            .backward = true});
}

void LatentAttention::mix_backward(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  at.ops.attention_backward(at.stream, {.shape = shape(call.micro_batch.tokens),
                                        .documents = call.micro_batch.documents,
                                        .q = w.q,
                                        .k = w.k,
                                        .v = w.v,
                                        .out = w.attended,
                                        .lse = w.lse,
                                        .grad_out = w.grad_attended,
                                        .grad_q = w.grad_q,
                                        .grad_k = w.grad_k,
                                        .grad_v = w.grad_v,
                                        .accumulate = at.accumulate});
}

void LatentAttention::in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                                  const View& grad_x, bool add) const {
  const Work& w = static_cast<const Work&>(call.work);
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  const auto scratch = [&](const View& view) { return view.slice_rows(0, range.count); };
  const Turn turn{call.micro_batch.positions + range.begin, call.tables};
  const View down = rows(w.down), grad_down = rows(w.grad_down), grad_k = rows(w.grad_k), kv = scratch(w.kv);
  const int64_t both = s_.of.plain + s_.of.value, head = s_.head();

  move(at, {.from = grad_k,
            .to = shared_key(grad_down),
            .heads = s_.heads,
            .width = s_.of.turning,
            .from_begin = s_.of.plain,
            .from_step = head,
            .backward = true});
  rope_key(at, grad_down, turn, true);
  move(at, {.from = grad_k,
            .to = kv,
            .heads = s_.heads,
            .width = s_.of.plain,
            .from_step = head,
            .to_step = both,
            .backward = true});
  move(at, {.from = rows(w.grad_v),
            .to = kv,
            .heads = s_.heads,
            .width = s_.of.value,
            .from_step = head,
            .to_begin = s_.of.plain,
            .to_step = both,
            .backward = true});
  // The rows before an up matmul are made again, and then give their place to their gradients.
  const auto through = [&](const Linear& up, const Norm& norm, const View& grad, const View& normed, const View& raw,
                           const View& grad_raw, float* inv_rms) {
    norm.forward(at, raw, normed, inv_rms);
    up.backward_weight(at, grad, normed);
    up.backward_input(at, grad, normed);
    norm.backward(at, {.x = raw, .inv_rms = inv_rms, .grad_out = normed, .grad_x = grad_raw});
  };
  through(up_kv_, kv_norm_, kv, scratch(w.normed_latent), latent(down), latent(grad_down), w.kv_inv_rms + range.begin);
  rope_queries(at, rows(w.grad_q), turn, true);
  if (q_norm_.exists())
    through(up_q_, q_norm_, rows(w.grad_q), scratch(w.normed_q), down.slice_cols(0, s_.of.q_rank),
            grad_down.slice_cols(0, s_.of.q_rank), w.q_inv_rms + range.begin);
  down_.backward_weight(at, grad_down, x);
  down_.backward_input(at, grad_down, grad_x, add);
}

int64_t LatentAttention::cache_bytes(int64_t sequences, int64_t context) const {
  return 2 * round_up(sequences * context * s_.keys() * dtype_bytes(s_.dtype), 256);
}

std::unique_ptr<Mixer::Work> LatentAttention::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  const auto rows = [&](int64_t width) { return carver.view(s_.dtype, tokens, width); };
  w->q_inv_rms = w->kv_inv_rms = carver.array<float>(tokens);
  w->down = rows(s_.down());
  if (q_norm_.exists()) w->normed_q = rows(s_.of.q_rank);
  w->normed_latent = rows(s_.of.kv_rank);
  w->kv = rows(s_.up_kv());
  w->q = q_norm_.exists() ? rows(s_.keys()) : w->down.slice_cols(0, s_.keys());
  w->k = rows(s_.keys());
  w->v = rows(s_.keys());
  w->attended = rows(s_.keys());
  if (s_.padded()) w->narrow = rows(s_.values());
  return w;
}

void LatentAttention::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  project(at, {.x = a.x,
               .down = w.down,
               .normed_q = w.normed_q,
               .normed_latent = w.normed_latent,
               .kv = w.kv,
               .q = w.q,
               .k = w.k,
               .v = w.v,
               .q_inv_rms = w.q_inv_rms,
               .kv_inv_rms = w.kv_inv_rms,
               .turn = {a.tokens.angles, a.tables}});
  const int64_t rows = a.cache.sequences * a.cache.context;
  const auto cached = [&](int64_t at_byte) { return matrix(a.cache.bytes + at_byte, s_.dtype, rows, s_.keys()); };
  at.ops.attention_cached(at.stream, {.shape = shape(a.tokens.tokens),
                                      .context = a.cache.context,
                                      .sequences = a.tokens.sequences,
                                      .positions = a.tokens.positions,
                                      .q = w.q,
                                      .k = w.k,
                                      .v = w.v,
                                      .k_cache = cached(0),
                                      .v_cache = cached(cache_bytes(a.cache.sequences, a.cache.context) / 2),
                                      .out = w.attended});
  o_.forward(at, outputs(at, w, {0, a.tokens.tokens}), a.residual, a.y);
}

}  // namespace megatrain
