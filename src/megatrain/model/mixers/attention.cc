#include "megatrain/model/mixers/attention.h"

#include <algorithm>
#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

// In generation there are no gradients, and the inverse RMS values are never read.
struct Attention::Work final : Mixer::Work {
  View qkv;            // (T, q + 2 kv) as attention reads it
  View raw_qkv;        // (T, raw) output of the qkv matmul; same as `qkv` without norms
  float* q_inv_rms{};  // (T * heads) with q/k norm only
  float* k_inv_rms{};  // (T * kv_heads)
  float* v_inv_rms{};  // (T * kv_heads) with v norm only
  View attended;       // (T, q)
  float* lse{};        // (heads * T)
  View grad_attended;  // (T, q)
  View grad_qkv;       // (T, q + 2 kv)
};

AttentionSizes attention_sizes(const ModelConfig& config, const ModelShape& shape, int64_t layer) {
  const int64_t window = config.window[static_cast<size_t>(layer)];
  const bool local = config.window_rope && window > 0;
  const HeadSizes heads = config.heads_of(layer);
  return {
      .heads = config.heads,
      .kv_heads = heads.kv_heads,
      .head_dim = heads.head_dim,
      .keys_are_values = heads.keys_are_values,
      .v_norm = config.v_norm,
      .window = window,
      .scale = static_cast<float>(config.attention_scale > 0 ? config.attention_scale
                                                             : 1.0 / std::sqrt(static_cast<double>(heads.head_dim))),
      .out_scale = config.branch_scale,
      .norm = norm_shape(config),
      .dtype = shape.dtype,
      .tokens = shape.tokens,
      .positions = shape.positions,
      .rope = local ? *config.window_rope : config.rope,
      .rope_at = local ? rope_floats(config.rope, config.full_head_dim(), shape.positions) : 0};
}

std::vector<AttentionShape> attention_shapes(const ModelConfig& config, int64_t tokens) {
  std::vector<AttentionShape> shapes;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const AttentionSizes sizes = attention_sizes(config, {}, layer);
    if (std::ranges::any_of(shapes, [&](const AttentionShape& shape) {
          return shape.window == sizes.window && shape.kv_heads == sizes.kv_heads && shape.head_dim == sizes.head_dim;
        }))
      continue;
    shapes.push_back({.tokens = tokens,
                      .heads = sizes.heads,
                      .kv_heads = sizes.kv_heads,
                      .head_dim = sizes.head_dim,
                      .window = sizes.window,
                      .scale = sizes.scale});
  }
  return shapes;
}

Attention::Attention(const AttentionSizes& sizes, const LinearTensors& from)
    : s_(sizes),
      q_norm_(from.record, BlockOperand::q_norm, sizes.norm),
      k_norm_(from.record, BlockOperand::k_norm, sizes.norm),
      v_norm_(sizes.v_norm ? Norm::weightless(sizes.head_dim, sizes.norm) : Norm()),
      sinks_(find_operand(from.record, BlockOperand::sinks)),
      qkv_(from, BlockOperand::qkv, BlockOperand::qkv_bias),
      o_(Linear(from, BlockOperand::o, BlockOperand::o_bias).times(sizes.out_scale)) {
  ensure(!v_norm_.exists() || q_norm_.exists(), "a norm of v is beside those of q and k");
  ensure(!s_.keys_are_values || v_norm_.exists(), "a norm makes values of keys");
}

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
    w->raw_qkv = inner.view(s_.dtype, s_.tokens, s_.raw_dim());
    w->q_inv_rms = inner.array<float>(s_.tokens * s_.heads);
    w->k_inv_rms = inner.array<float>(s_.tokens * s_.kv_heads);
    if (v_norm_.exists()) w->v_inv_rms = inner.array<float>(s_.tokens * s_.kv_heads);
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

// The columns of (T, raw).
Attention::Qkv Attention::split_raw(const View& raw) const {
  const View k = raw.slice_cols(s_.q_dim(), s_.kv_dim());
  return {.q = raw.slice_cols(0, s_.q_dim()),
          .k = k,
          .v = s_.keys_are_values ? k : raw.slice_cols(s_.q_dim() + s_.kv_dim(), s_.kv_dim())};
}

// What attention reads.
Attention::Qkv Attention::attended(const View& raw_qkv, const View& qkv) const {
  Qkv read = split(qkv);
  if (!v_norm_.exists()) read.v = split_raw(raw_qkv).v;
  return read;
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
  const int64_t turning = s_.rope.turning(s_.head_dim), half = turning / 2;
  for (const AngleRun& run : runs) {
    const float* cos = tables + s_.rope_at + (run.in_long ? s_.positions * half : 0);
    at.ops.rope(at.stream, {.x = qkv.slice_rows(run.begin, run.count).slice_cols(0, s_.q_dim() + s_.kv_dim()),
                            .heads = s_.heads + s_.kv_heads,
                            .head_dim = s_.head_dim,
                            .rotary_dim = turning,
                            .positions = angles + run.begin,
                            .cos = cos,
                            .sin = cos + rope_rows(s_.rope, s_.positions) * half,
                            .backward = backward});
  }
}

struct Attention::Project {
  View x;                 // (T, H) normalised
  View raw_qkv;           // (T, raw) out: before the norms; may alias columns of `qkv`, and must without norms
  View qkv;               // (T, q + 2 kv) out: q and k as attention reads them, and v if it is normalised
  float* q_inv_rms;       // (T * heads) out, with q/k norm only
  float* k_inv_rms;       // (T * kv_heads)
  float* v_inv_rms;       // (T * kv_heads) out, with v norm only
  const int32_t* angles;  // (T) rows of the tables
  std::vector<AngleRun> runs;
  const float* tables;
};

// Returns the views that attention reads. v is normalised first, since it may be made of the keys that their norm
// overwrites.
Attention::Qkv Attention::project(const Binding& at, const Project& a) const {
  qkv_.forward(at, a.x, {}, a.raw_qkv);
  const Qkv raw = split_raw(a.raw_qkv), read = split(a.qkv);
  if (v_norm_.exists()) v_norm_.forward(at, raw.v, read.v, a.v_inv_rms);
  if (q_norm_.exists()) {
    q_norm_.forward(at, raw.q, read.q, a.q_inv_rms);
    k_norm_.forward(at, raw.k, read.k, a.k_inv_rms);
  }
  rope(at, a.qkv, a.angles, a.runs, a.tables, false);
  return attended(a.raw_qkv, a.qkv);
}

void Attention::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  project(at, {.x = x,
               .raw_qkv = w.raw_qkv.slice_rows(range.begin, range.count),
               .qkv = w.qkv.slice_rows(range.begin, range.count),
               .q_inv_rms = q_norm_.exists() ? w.q_inv_rms + range.begin * s_.heads : nullptr,
               .k_inv_rms = q_norm_.exists() ? w.k_inv_rms + range.begin * s_.kv_heads : nullptr,
               .v_inv_rms = v_norm_.exists() ? w.v_inv_rms + range.begin * s_.kv_heads : nullptr,
               .angles = call.micro_batch.positions + range.begin,
               .runs = runs_of(call.micro_batch, range),
               .tables = call.tables});
}

void Attention::mix(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Qkv read = attended(w.raw_qkv, w.qkv);
  at.ops.attention_forward(at.stream, {.shape = shape(s_.tokens),
                                       .documents = call.micro_batch.documents,
                                       .q = read.q,
                                       .k = read.k,
                                       .v = read.v,
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
  const Qkv read = attended(w.raw_qkv, w.qkv), grad = split(w.grad_qkv);
  at.ops.attention_backward(at.stream, {.shape = shape(s_.tokens),
                                        .documents = call.micro_batch.documents,
                                        .q = read.q,
                                        .k = read.k,
                                        .v = read.v,
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
    const Qkv raw = split_raw(w.raw_qkv.slice_rows(range.begin, range.count)), grad = split(grad_qkv);
    if (v_norm_.exists())
      v_norm_.backward(
          at, {.x = raw.v, .inv_rms = w.v_inv_rms + range.begin * s_.kv_heads, .grad_out = grad.v, .grad_x = grad.v});
    q_norm_.backward(
        at, {.x = raw.q, .inv_rms = w.q_inv_rms + range.begin * s_.heads, .grad_out = grad.q, .grad_x = grad.q});
    k_norm_.backward(at, {.x = raw.k,
                          .inv_rms = w.k_inv_rms + range.begin * s_.kv_heads,
                          .grad_out = grad.k,
                          .residual = s_.keys_are_values ? grad.v : View{},
                          .grad_x = grad.k});
  }
  const View grad_raw = grad_qkv.slice_cols(0, s_.raw_dim());
  qkv_.backward_weight(at, grad_raw, x);
  qkv_.backward_input(at, grad_raw, grad_x, add);
}

int64_t Attention::cache_bytes(int64_t sequences, int64_t context) const {
  return 2 * round_up(sequences * context * s_.kv_dim() * dtype_bytes(s_.dtype), 256);
}

std::unique_ptr<Mixer::Work> Attention::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->q_inv_rms = w->k_inv_rms = w->v_inv_rms = carver.array<float>(tokens * s_.heads);
  w->qkv = carver.view(s_.dtype, tokens, s_.qkv_dim());
  w->raw_qkv = w->qkv.slice_cols(0, s_.raw_dim());
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
                                .v_inv_rms = w.v_inv_rms,
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
