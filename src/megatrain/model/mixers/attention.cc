#include "megatrain/model/mixers/attention.h"

#include <algorithm>
#include <cmath>

#include "megatrain/base/math.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

// In generation there are no gradients, and the inverse RMS values are never read.
struct Attention::Work final : Mixer::Work {
  View qkv;            // (T, q + 2 kv) as attention reads it
  View raw_qkv;        // (T, q + 2 kv) output of the qkv matmul; has v for attention; same as `qkv` without q/k norm
  float* q_inv_rms{};  // (T * heads) with q/k norm only
  float* k_inv_rms{};  // (T * kv_heads)
  View attended;       // (T, q)
  float* lse{};        // (heads * T)
  View grad_attended;  // (T, q)
  View grad_qkv;       // (T, q + 2 kv)
};

AttentionSizes attention_sizes(const ModelConfig& config, const ModelShape& shape, int64_t layer) {
  const int64_t window = config.window[static_cast<size_t>(layer)];
  const bool local = config.window_rope && window > 0;
  return {
      .heads = config.heads,
      .kv_heads = config.kv_heads,
      .head_dim = config.head_dim,
      .window = window,
      .scale = static_cast<float>(config.attention_scale > 0 ? config.attention_scale
                                                             : 1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      .out_scale = config.branch_scale,
      .norm = norm_shape(config),
      .dtype = shape.dtype,
      .tokens = shape.tokens,
      .positions = shape.positions,
      .rotates = config.rotates(layer),
      .rope = local ? *config.window_rope : config.rope,
      .rope_at = local ? rope_floats(config.rope, config.head_dim, shape.positions) : 0};
}

Attention::Attention(const AttentionSizes& sizes, const LinearTensors& from)
    : s_(sizes),
      q_norm_(from.record, BlockOperand::q_norm, sizes.norm),
      k_norm_(from.record, BlockOperand::k_norm, sizes.norm),
      sinks_(find_operand(from.record, BlockOperand::sinks)),
      qkv_(from, BlockOperand::qkv, BlockOperand::qkv_bias),
      o_(Linear(from, BlockOperand::o, BlockOperand::o_bias).times(sizes.out_scale)) {}

std::vector<Mixer::Level> Attention::keep_levels() const {
  return {{.name = "outputs", .spared = "attention", .mixed = true, .may_wait = true},
          {.name = "attention", .spared = "attention", .mixed = true, .whole = true}};
}

std::unique_ptr<Mixer::Work> Attention::carve(const Space& space) const {
  enum : int64_t { outputs = 1, attention };  // keep_levels()
  auto w = std::make_unique<Work>();
  Carver& inner = space.at(attention);
  w->qkv = inner.view(s_.dtype, s_.tokens, s_.qkv_dim());
  w->raw_qkv = w->qkv;
  if (q_norm_.exists()) {
    w->raw_qkv = inner.view(s_.dtype, s_.tokens, s_.qkv_dim());
    w->q_inv_rms = inner.array<float>(s_.tokens * s_.heads);
    w->k_inv_rms = inner.array<float>(s_.tokens * s_.kv_heads);
  }
  w->attended = space.at(outputs).view(s_.dtype, s_.tokens, s_.q_dim());
  w->lse = space.at(outputs).array<float>(s_.tokens * s_.heads);
  w->grad_attended = space.work.view(s_.dtype, s_.tokens, s_.q_dim());
  w->grad_qkv = space.work.view(s_.dtype, s_.tokens, s_.qkv_dim());
  return w;
}

AttentionShape Attention::shape(int64_t tokens) const {
  return {.tokens = tokens,
          .heads = s_.heads,
          .kv_heads = s_.kv_heads,
          .head_dim = s_.head_dim,
          .window = s_.window,
          .scale = s_.scale};
}

// The columns of (T, q + 2 kv).
Attention::Qkv Attention::split(const View& qkv) const {
  return {.q = qkv.slice_cols(0, s_.q_dim()),
          .k = qkv.slice_cols(s_.q_dim(), s_.kv_dim()),
          .v = qkv.slice_cols(s_.q_dim() + s_.kv_dim(), s_.kv_dim())};
}

// The runs within a range. Their `begin` is relative to the range's first token.
std::vector<AngleRun> Attention::runs_of(const MicroBatchView& micro_batch, const TokenRange& range) const {
  std::vector<AngleRun> runs;
  for (const AngleRun& run : angle_runs(micro_batch.documents, micro_batch.tokens, s_.rope.long_above())) {
    const int64_t begin = std::max(run.begin, range.begin),
                  end = std::min(run.begin + run.count, range.begin + range.count);
    if (begin < end) runs.push_back({begin - range.begin, end - begin, run.in_long});
  }
  return runs;
}

void Attention::rope(const Binding& at, const View& qkv, const int32_t* angles, const std::vector<AngleRun>& runs,
                     const float* tables, bool backward) const {
  if (!s_.rotates) return;
  const int64_t half = s_.rope.turning(s_.head_dim) / 2, cos_and_sin = 2 * rope_rows(s_.rope, s_.positions) * half;
  for (const AngleRun& run : runs) {
    const float* cos = tables + s_.rope_at + (run.in_long ? s_.positions * half : 0);
    const View rows = qkv.slice_rows(run.begin, run.count);
    if (s_.rope.query_growth > 0) {
      rotate(at, rows.slice_cols(0, s_.q_dim()), angles + run.begin, cos + cos_and_sin, backward);
      rotate(at, rows.slice_cols(s_.q_dim(), s_.kv_dim()), angles + run.begin, cos, backward);
    } else {
      rotate(at, rows.slice_cols(0, s_.q_dim() + s_.kv_dim()), angles + run.begin, cos, backward);
    }
  }
}

// `heads`: (T, n * head_dim). The table of sin lies behind that of cos.
void Attention::rotate(const Binding& at, const View& heads, const int32_t* angles, const float* cos,
                       bool backward) const {
  const int64_t turning = s_.rope.turning(s_.head_dim);
  at.ops.rope(at.stream, {.x = heads,
                          .heads = heads.cols / s_.head_dim,
                          .head_dim = s_.head_dim,
                          .rotary_dim = turning,
                          .pairs = s_.rope.pairs,
                          .positions = angles,
                          .cos = cos,
                          .sin = cos + rope_rows(s_.rope, s_.positions) * turning / 2,
                          .backward = backward});
}

struct Attention::Project {
  View x;                 // (T, H) normalised
  View raw_qkv;           // (T, q + 2 kv) out: before q/k norm; may alias `qkv`, and must without q/k norm
  View qkv;               // (T, q + 2 kv) out: q and k as attention reads them
  float* q_inv_rms;       // (T * heads) out, with q/k norm only
  float* k_inv_rms;       // (T * kv_heads)
  const int32_t* angles;  // (T) rows of the tables
  std::vector<AngleRun> runs;
  const float* tables;
};

// Returns the views that attention reads: q and k from `qkv`, v from `raw_qkv`.
Attention::Qkv Attention::project(const Binding& at, const Project& a) const {
  qkv_.forward(at, a.x, {}, a.raw_qkv);
  const Qkv raw = split(a.raw_qkv), read = split(a.qkv);
  if (q_norm_.exists()) {
    q_norm_.forward(at, raw.q, read.q, a.q_inv_rms);
    k_norm_.forward(at, raw.k, read.k, a.k_inv_rms);
  }
  rope(at, a.qkv, a.angles, a.runs, a.tables, false);
  return {.q = read.q, .k = read.k, .v = raw.v};
}

void Attention::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  project(at, {.x = x,
               .raw_qkv = w.raw_qkv.slice_rows(range.begin, range.count),
               .qkv = w.qkv.slice_rows(range.begin, range.count),
               .q_inv_rms = q_norm_.exists() ? w.q_inv_rms + range.begin * s_.heads : nullptr,
               .k_inv_rms = q_norm_.exists() ? w.k_inv_rms + range.begin * s_.kv_heads : nullptr,
               .angles = call.micro_batch.positions + range.begin,
               .runs = runs_of(call.micro_batch, range),
               .tables = call.tables});
}

void Attention::mix(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Qkv read = split(w.qkv), raw = split(w.raw_qkv);
  at.ops.attention_forward(at.stream, {.shape = shape(s_.tokens),
                                       .documents = call.micro_batch.documents,
                                       .q = read.q,
                                       .k = read.k,
                                       .v = raw.v,
                                       .sinks = sinks_.weight(at.weights),
                                       .out = w.attended,
                                       .lse = w.lse});
}

void Attention::out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                    const View& y) const {
  const Work& w = static_cast<const Work&>(call.work);
  o_.forward(at, w.attended.slice_rows(range.begin, range.count), residual, y);
}

void Attention::out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const {
  const Work& w = static_cast<const Work&>(call.work);
  o_.backward_weight(at, grad_y, w.attended.slice_rows(range.begin, range.count));
  o_.backward_input(at, grad_y, w.grad_attended.slice_rows(range.begin, range.count));
}

void Attention::mix_backward(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Qkv read = split(w.qkv), raw = split(w.raw_qkv), grad = split(w.grad_qkv);
  at.ops.attention_backward(at.stream, {.shape = shape(s_.tokens),
                                        .documents = call.micro_batch.documents,
                                        .q = read.q,
                                        .k = read.k,
                                        .v = raw.v,
                                        .sinks = sinks_.weight(at.weights),
                                        .out = w.attended,
                                        .lse = w.lse,
                                        .grad_out = w.grad_attended,
                                        .grad_q = grad.q,
                                        .grad_k = grad.k,
                                        .grad_v = grad.v,
                                        .grad_sinks = sinks_.gradient(at.gradients),
                                        .accumulate = at.accumulate});
}

void Attention::in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                            const View& grad_x, bool add) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View grad_qkv = w.grad_qkv.slice_rows(range.begin, range.count);
  rope(at, grad_qkv, call.micro_batch.positions + range.begin, runs_of(call.micro_batch, range), call.tables, true);
  if (q_norm_.exists()) {
    const Qkv raw = split(w.raw_qkv.slice_rows(range.begin, range.count)), grad = split(grad_qkv);
    q_norm_.backward(
        at, {.x = raw.q, .inv_rms = w.q_inv_rms + range.begin * s_.heads, .grad_out = grad.q, .grad_x = grad.q});
    k_norm_.backward(
        at, {.x = raw.k, .inv_rms = w.k_inv_rms + range.begin * s_.kv_heads, .grad_out = grad.k, .grad_x = grad.k});
  }
  qkv_.backward_weight(at, grad_qkv, x);
  qkv_.backward_input(at, grad_qkv, grad_x, add);
}

int64_t Attention::cache_bytes(int64_t sequences, int64_t context) const {
  return 2 * round_up(sequences * context * s_.kv_dim() * dtype_bytes(s_.dtype), 256);
}

std::unique_ptr<Mixer::Work> Attention::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->q_inv_rms = w->k_inv_rms = carver.array<float>(tokens * s_.heads);
  w->qkv = w->raw_qkv = carver.view(s_.dtype, tokens, s_.qkv_dim());
  w->attended = carver.view(s_.dtype, tokens, s_.q_dim());
  return w;
}

void Attention::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  const Qkv read = project(at, {.x = a.x,
                                .raw_qkv = w.raw_qkv,
                                .qkv = w.qkv,
                                .q_inv_rms = w.q_inv_rms,
                                .k_inv_rms = w.k_inv_rms,
                                .angles = a.tokens.angles,
                                .runs = {{0, a.tokens.tokens, false}},
                                .tables = a.tables});
  const int64_t rows = a.cache.sequences * a.cache.context;
  const auto cached = [&](int64_t at_byte) { return matrix(a.cache.bytes + at_byte, s_.dtype, rows, s_.kv_dim()); };
  at.ops.attention_cached(at.stream, {.shape = shape(a.tokens.tokens),
                                      .context = a.cache.context,
                                      .sequences = a.tokens.sequences,
                                      .positions = a.tokens.positions,
                                      .q = read.q,
                                      .k = read.k,
                                      .v = read.v,
                                      .sinks = sinks_.weight(at.weights),
                                      .k_cache = cached(0),
                                      .v_cache = cached(cache_bytes(a.cache.sequences, a.cache.context) / 2),
                                      .out = w.attended});
  o_.forward(at, w.attended, a.residual, a.y);
}

}  // namespace megatrain
