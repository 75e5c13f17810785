#include "megatrain/model/layers/mixers/attention.h"

#include <algorithm>
#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

// In generation there are no gradients, and the inverse RMS values are never read.
struct Attention::Work final : Mixer::Work {
  View qkv;            // (T, q + 2 kv), with a gate (T, 2 kv), as attention reads it
  View raw_qkv;        // (T, raw) output of the matmul; same as `qkv` without norms
  float* q_inv_rms{};  // (T * heads) with q/k norm only
  float* k_inv_rms{};  // (T * kv_heads)
  float* v_inv_rms{};  // (T * kv_heads) with v norm only
  View attended;       // (T, q)
  float* lse{};        // (heads * T)
  View grad_attended;  // (T, q)
  View grad_qkv;       // as qkv
  View grad_kv;        // (T, 2 kv) only of a reader: its part of the shared gradient
  // With a gate only.
  View q;           // (T, q) as attention reads it
  View raw_q;       // (T, 2q) output of the matmul
  View gated;       // (C, q)
  View grad_q;      // (T, q)
  View grad_raw_q;  // (T, 2q)
  View grad_gated;  // (C, q)
};

namespace {

// The attention of a layer is its first phase, unless what tokens give to all layers is made before it.
std::optional<SharedRead> kv_read(const ModelConfig& config, int64_t layer) {
  const int64_t source = config.kv_source(layer);
  if (source < 0) return {};
  const HeadSizes heads = config.heads_of(layer);
  return SharedRead{.layer = source,
                    .phase = source == 0 && config.layer_input > 0 ? 1 : 0,
                    .width = 2 * heads.kv_heads * heads.head_dim};
}

}  // namespace

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
      .gives_kv = config.gives_kv(layer),
      .reads_kv = kv_read(config, layer),
      .window = window,
      .scale = static_cast<float>(config.attention_scale > 0 ? config.attention_scale
                                                             : 1.0 / std::sqrt(static_cast<double>(heads.head_dim))),
      .cap = static_cast<float>(config.attention_cap),
      .out_scale = config.branch_scale * config.scales.attention_out,
      .norm = norm_shape(config),
      .dtype = shape.dtype,
      .positions = shape.positions,
      .rotates = config.rotates(layer),
      .rope = local ? *config.window_rope : config.rope,
      .rope_at = local ? rope_floats(config.rope, config.full_head_dim(), shape.positions) : 0,
      .gate = config.attention_gate};
}

std::vector<AttentionShape> attention_shapes(const ModelConfig& config, int64_t tokens) {
  std::vector<AttentionShape> shapes;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (!config.attends(layer)) continue;
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
                      .scale = sizes.scale,
                      .cap = sizes.cap});
  }
  return shapes;
}

Attention::Attention(const AttentionSizes& sizes, const LinearTensors& from)
    : s_(sizes),
      q_norm_(from.record, BlockOperand::q_norm, sizes.norm),
      k_norm_(from.record, BlockOperand::k_norm, sizes.norm),
      v_norm_(sizes.v_norm && !sizes.reads_kv ? Norm::weightless(sizes.head_dim, sizes.norm) : Norm()),
      sinks_(find_operand(from.record, BlockOperand::sinks)),
      gated_q_(from, BlockOperand::gated_q),
      qkv_(from, BlockOperand::qkv, BlockOperand::qkv_bias),
      o_(Linear(from, BlockOperand::o, BlockOperand::o_bias).times(sizes.out_scale)) {
  ensure(!s_.gate || q_norm_.exists(), "gated attention normalises its queries");
  ensure(!v_norm_.exists() || q_norm_.exists(), "a norm of v is beside those of q and k");
  ensure(!s_.keys_are_values || v_norm_.exists() || s_.reads_kv, "a norm makes values of keys");
  ensure(!s_.gives_kv || (v_norm_.exists() && !s_.gate), "shared keys and values lie side by side");
  ensure(!s_.reads_kv || (!s_.gate && s_.rope.query_growth == 0), "a reader has plain queries");
}

std::vector<Mixer::Level> Attention::keep_levels() const {
  return {{.name = "outputs", .spared = "attention", .mixed = true, .may_wait = true},
          {.name = "attention", .spared = "attention", .mixed = true, .whole = true}};
}

std::unique_ptr<Mixer::Work> Attention::carve(const Space& space) const {
  enum : int64_t { outputs = 1, attention };  // keep_levels()
  auto w = std::make_unique<Work>();
  Carver& inner = space.at(attention);
  w->qkv = inner.view(s_.dtype, space.tokens, s_.qkv_dim());
  w->raw_qkv = w->qkv;
  if (q_norm_.exists()) {
    w->raw_qkv = inner.view(s_.dtype, space.tokens, s_.raw_dim());
    w->q_inv_rms = inner.array<float>(space.tokens * s_.heads);
    w->k_inv_rms = inner.array<float>(space.tokens * s_.kv_heads);
    if (v_norm_.exists()) w->v_inv_rms = inner.array<float>(space.tokens * s_.kv_heads);
  }
  w->attended = space.at(outputs).view(s_.dtype, space.tokens, s_.q_dim());
  w->lse = space.at(outputs).array<float>(space.tokens * s_.heads);
  w->grad_attended = space.work.view(s_.dtype, space.tokens, s_.q_dim());
  w->grad_qkv = space.work.view(s_.dtype, space.tokens, s_.qkv_dim());
  if (s_.reads_kv) w->grad_kv = space.work.view(s_.dtype, space.tokens, 2 * s_.kv_dim());
  if (s_.gate) {
    w->q = inner.view(s_.dtype, space.tokens, s_.q_dim());
    w->raw_q = inner.view(s_.dtype, space.tokens, 2 * s_.q_dim());
    w->gated = space.work.view(s_.dtype, space.chunk, s_.q_dim());
    w->grad_q = space.work.view(s_.dtype, space.tokens, s_.q_dim());
    w->grad_raw_q = space.work.view(s_.dtype, space.tokens, 2 * s_.q_dim());
    w->grad_gated = space.work.view(s_.dtype, space.chunk, s_.q_dim());
  }
  return w;
}

AttentionShape Attention::shape(int64_t tokens) const {
  return {.tokens = tokens,
          .heads = s_.heads,
          .kv_heads = s_.kv_heads,
          .head_dim = s_.head_dim,
          .window = s_.window,
          .scale = s_.scale,
          .cap = s_.cap};
}

// The columns of the fused matmul; with a gate, q is apart. A reader's k and v are those of `shared_kv`, if given.
Attention::Qkv Attention::split(const View& qkv, const View& q, const View& shared_kv) const {
  if (s_.reads_kv) {
    const auto part = [&](int64_t begin) {
      return shared_kv.empty() ? View{} : shared_kv.slice_cols(begin, s_.kv_dim());
    };
    return {.q = qkv, .k = part(0), .v = part(s_.kv_dim())};
  }
  const int64_t begin = s_.gate ? 0 : s_.q_dim();
  return {.q = s_.gate ? q : qkv.slice_cols(0, s_.q_dim()),
          .k = qkv.slice_cols(begin, s_.kv_dim()),
          .v = qkv.slice_cols(begin + s_.kv_dim(), s_.kv_dim())};
}

// The columns of (T, raw); with a gate, q is apart.
Attention::Qkv Attention::split_raw(const View& raw) const {
  if (s_.reads_kv) return {.q = raw, .k = {}, .v = {}};
  const int64_t begin = s_.gate ? 0 : s_.q_dim();
  const View k = raw.slice_cols(begin, s_.kv_dim());
  return {.q = s_.gate ? View{} : raw.slice_cols(0, s_.q_dim()),
          .k = k,
          .v = s_.keys_are_values ? k : raw.slice_cols(begin + s_.kv_dim(), s_.kv_dim())};
}

// What attention reads.
Attention::Qkv Attention::attended(const View& raw_qkv, const View& qkv, const View& q, const View& shared_kv) const {
  Qkv read = split(qkv, q, shared_kv);
  if (!v_norm_.exists() && !s_.reads_kv) read.v = split_raw(raw_qkv).v;
  return read;
}

// Keys and values side by side.
void Attention::move_kv(const Binding& at, const View& from, int64_t from_begin, const View& to, int64_t to_begin,
                        bool add) const {
  at.ops.move_heads(at.stream, {.from = from,
                                .to = to,
                                .heads = 1,
                                .width = 2 * s_.kv_dim(),
                                .from_begin = from_begin,
                                .to_begin = to_begin,
                                .to_step = 2 * s_.kv_dim(),
                                .add = add,
                                .backward = add});
}

// (T * heads, head_dim) of (T, 2q), whose rows have a query and its gate for every head. Rows are contiguous.
View Attention::queries(const View& rows) const {
  ensure(rows.contiguous(), "rows of queries and gates follow each other");
  return {rows.data, rows.dtype, rows.rows * s_.heads, s_.head_dim, 2 * s_.head_dim};
}
View Attention::gates(const View& rows) const {
  View gates = queries(rows);
  gates.data = rows.slice_cols(s_.head_dim, s_.head_dim).data;
  return gates;
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

struct Attention::Turn {
  const int32_t* angles;  // (T) rows of the tables
  std::vector<AngleRun> runs;
  const float* tables;
};

// Without a gate, q and k are adjacent columns.
void Attention::rope(const Binding& at, const Qkv& qk, const Turn& turn, bool backward) const {
  if (!s_.rotates) return;
  const int64_t half = s_.rope.turning(s_.head_dim) / 2, cos_and_sin = 2 * rope_rows(s_.rope, s_.positions) * half;
  for (const AngleRun& run : turn.runs) {
    const float* cos = turn.tables + s_.rope_at + (run.in_long ? s_.positions * half : 0);
    const int32_t* angles = turn.angles + run.begin;
    const View q = qk.q.slice_rows(run.begin, run.count);
    const View k = qk.k.empty() ? View{} : qk.k.slice_rows(run.begin, run.count);
    if (s_.gate || s_.rope.query_growth > 0) {
      rotate(at, q, angles, cos + (s_.rope.query_growth > 0 ? cos_and_sin : 0), backward);
      rotate(at, k, angles, cos, backward);
    } else {
      View both = q;
      both.cols += k.cols;
      rotate(at, both, angles, cos, backward);
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
  View x;            // (T, H) normalised
  View raw_qkv;      // (T, raw) out: before the norms; may alias columns of `qkv`, and must without norms
  View qkv;          // (T, q + 2 kv) out: q and k as attention reads them, and v if it is normalised
  View raw_q, q;     // with a gate: (T, 2q) and (T, q) out; the two above are (T, 2 kv)
  float* q_inv_rms;  // (T * heads) out, with q/k norm only
  float* k_inv_rms;  // (T * kv_heads)
  float* v_inv_rms;  // (T * kv_heads) out, with v norm only
  Turn turn;
};

// A contiguous matrix as one row per head.
static View by_head(const View& rows, int64_t head_dim) {
  return matrix(rows.data, rows.dtype, rows.rows * (rows.cols / head_dim), head_dim);
}

// Returns the views that attention reads. v is normalised first, since it may be made of the keys that their norm
// overwrites.
Attention::Qkv Attention::project(const Binding& at, const Project& a) const {
  if (s_.gate) gated_q_.forward(at, a.x, {}, a.raw_q);
  qkv_.forward(at, a.x, {}, a.raw_qkv);
  const Qkv raw = split_raw(a.raw_qkv), read = split(a.qkv, a.q);
  if (v_norm_.exists()) v_norm_.forward(at, raw.v, read.v, a.v_inv_rms);
  if (s_.gate) {
    q_norm_.forward(at, queries(a.raw_q), by_head(a.q, s_.head_dim), a.q_inv_rms);
  } else if (q_norm_.exists()) {
    q_norm_.forward(at, raw.q, read.q, a.q_inv_rms);
  }
  if (k_norm_.exists()) k_norm_.forward(at, raw.k, read.k, a.k_inv_rms);
  rope(at, read, a.turn, false);
  return attended(a.raw_qkv, a.qkv, a.q, {});
}

void Attention::in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const {
  const Work& w = static_cast<const Work&>(call.work);
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  project(at, {.x = x,
               .raw_qkv = rows(w.raw_qkv),
               .qkv = rows(w.qkv),
               .raw_q = s_.gate ? rows(w.raw_q) : View{},
               .q = s_.gate ? rows(w.q) : View{},
               .q_inv_rms = q_norm_.exists() ? w.q_inv_rms + range.begin * s_.heads : nullptr,
               .k_inv_rms = q_norm_.exists() ? w.k_inv_rms + range.begin * s_.kv_heads : nullptr,
               .v_inv_rms = v_norm_.exists() ? w.v_inv_rms + range.begin * s_.kv_heads : nullptr,
               .turn = turn_of(call, range)});
  if (s_.gives_kv) move_kv(at, rows(w.qkv), s_.q_dim(), rows(call.shared.made), 0, false);
}

Attention::Turn Attention::turn_of(const Call& call, const TokenRange& range) const {
  return {.angles = call.micro_batch.positions + range.begin,
          .runs = runs_of(call.micro_batch, range),
          .tables = call.tables};
}

void Attention::mix(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Qkv read = attended(w.raw_qkv, w.qkv, w.q, call.shared.read);
  at.ops.attention_forward(at.stream, {.shape = shape(call.micro_batch.tokens),
                                       .documents = call.micro_batch.documents,
                                       .q = read.q,
                                       .k = read.k,
                                       .v = read.v,
                                       .sinks = sinks_.weight(at.weights),
                                       .out = w.attended,
                                       .lse = w.lse});
}

// What `o` reads.
View Attention::gated(const Binding& at, const Work& w, const TokenRange& range) const {
  const View attended = w.attended.slice_rows(range.begin, range.count);
  if (!s_.gate) return attended;
  const View result = w.gated.slice_rows(0, range.count);
  at.ops.output_gate_forward(at.stream, {.x = by_head(attended, s_.head_dim),
                                         .gate = gates(w.raw_q.slice_rows(range.begin, range.count)),
                                         .out = by_head(result, s_.head_dim)});
  return result;
}

void Attention::out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                    const View& y) const {
  o_.forward(at, gated(at, static_cast<const Work&>(call.work), range), residual, y);
}

void Attention::out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const {
  const Work& w = static_cast<const Work&>(call.work);
  const View grad_attended = w.grad_attended.slice_rows(range.begin, range.count);
  const View grad_gated = s_.gate ? w.grad_gated.slice_rows(0, range.count) : grad_attended;
  o_.backward_weight(at, grad_y, gated(at, w, range));
  o_.backward_input(at, grad_y, grad_gated);
  if (!s_.gate) return;
  at.ops.output_gate_backward(at.stream, {.x = by_head(w.attended.slice_rows(range.begin, range.count), s_.head_dim),
                                          .gate = gates(w.raw_q.slice_rows(range.begin, range.count)),
                                          .grad_out = by_head(grad_gated, s_.head_dim),
                                          .grad_x = by_head(grad_attended, s_.head_dim),
                                          .grad_gate = gates(w.grad_raw_q.slice_rows(range.begin, range.count))});
}

void Attention::mix_backward(const Binding& at, const Call& call) const {
  const Work& w = static_cast<const Work&>(call.work);
  const Qkv read = attended(w.raw_qkv, w.qkv, w.q, call.shared.read), grad = split(w.grad_qkv, w.grad_q, w.grad_kv);
  at.ops.attention_backward(at.stream, {.shape = shape(call.micro_batch.tokens),
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
  if (s_.gives_kv) move_kv(at, call.shared.grad_made, 0, w.grad_qkv, s_.q_dim(), true);
  if (!call.shared.grad_read.empty()) move_kv(at, w.grad_kv, 0, call.shared.grad_read, 0, true);
}

void Attention::in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                            const View& grad_x, bool add) const {
  const Work& w = static_cast<const Work&>(call.work);
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  const View grad_qkv = rows(w.grad_qkv), grad_raw_q = s_.gate ? rows(w.grad_raw_q) : View{};
  const Qkv grad = split(grad_qkv, s_.gate ? rows(w.grad_q) : View{});
  rope(at, grad, turn_of(call, range), true);
  if (q_norm_.exists()) {
    const Qkv raw = split_raw(rows(w.raw_qkv));
    if (v_norm_.exists())
      v_norm_.backward(
          at, {.x = raw.v, .inv_rms = w.v_inv_rms + range.begin * s_.kv_heads, .grad_out = grad.v, .grad_x = grad.v});
    const View grad_q = s_.gate ? by_head(grad.q, s_.head_dim) : grad.q;
    q_norm_.backward(at, {.x = s_.gate ? queries(rows(w.raw_q)) : raw.q,
                          .inv_rms = w.q_inv_rms + range.begin * s_.heads,
                          .grad_out = grad_q,
                          .grad_x = s_.gate ? queries(grad_raw_q) : grad_q});
    if (k_norm_.exists())
      k_norm_.backward(at, {.x = raw.k,
                            .inv_rms = w.k_inv_rms + range.begin * s_.kv_heads,
                            .grad_out = grad.k,
                            .residual = s_.keys_are_values ? grad.v : View{},
                            .grad_x = grad.k});
  }
  if (s_.gate) {
    gated_q_.backward_weight(at, grad_raw_q, x);
    gated_q_.backward_input(at, grad_raw_q, grad_x, add);
  }
  const View grad_raw = grad_qkv.slice_cols(0, s_.raw_dim());
  qkv_.backward_weight(at, grad_raw, x);
  qkv_.backward_input(at, grad_raw, grad_x, add || s_.gate);
}

// Bytes of the keys, or of the values.
int64_t Attention::kv_bytes(int64_t sequences, int64_t context) const {
  return round_up(sequences * context * s_.kv_dim() * dtype_bytes(s_.dtype), 256);
}

int64_t Attention::cache_bytes(int64_t sequences, int64_t context) const {
  return s_.reads_kv ? 0 : 2 * kv_bytes(sequences, context);
}

std::unique_ptr<Mixer::Work> Attention::carve_decode(Carver& carver, int64_t tokens) const {
  auto w = std::make_unique<Work>();
  w->q_inv_rms = w->k_inv_rms = w->v_inv_rms = carver.array<float>(tokens * s_.heads);
  w->qkv = carver.view(s_.dtype, tokens, s_.qkv_dim());
  w->raw_qkv = w->qkv.slice_cols(0, s_.raw_dim());
  w->attended = carver.view(s_.dtype, tokens, s_.q_dim());
  if (s_.gate) {
    w->q = carver.view(s_.dtype, tokens, s_.q_dim());
    w->raw_q = carver.view(s_.dtype, tokens, 2 * s_.q_dim());
    w->gated = carver.view(s_.dtype, tokens, s_.q_dim());
  }
  return w;
}

void Attention::decode(const Binding& at, const Decode& a) const {
  const Work& w = static_cast<const Work&>(a.work);
  const Qkv read =
      project(at, {.x = a.x,
                   .raw_qkv = w.raw_qkv,
                   .qkv = w.qkv,
                   .raw_q = w.raw_q,
                   .q = w.q,
                   .q_inv_rms = w.q_inv_rms,
                   .k_inv_rms = w.k_inv_rms,
                   .v_inv_rms = w.v_inv_rms,
                   .turn = {.angles = a.tokens.angles, .runs = {{0, a.tokens.tokens, false}}, .tables = a.tables}});
  const SequenceCache& cache = s_.reads_kv ? a.read : a.cache;
  const int64_t rows = cache.sequences * cache.context;
  const auto cached = [&](int64_t at_byte) { return matrix(cache.bytes + at_byte, s_.dtype, rows, s_.kv_dim()); };
  at.ops.attention_cached(at.stream, {.shape = shape(a.tokens.tokens),
                                      .context = cache.context,
                                      .sequences = a.tokens.sequences,
                                      .positions = a.tokens.positions,
                                      .q = read.q,
                                      .k = read.k,
                                      .v = read.v,
                                      .sinks = sinks_.weight(at.weights),
                                      .k_cache = cached(0),
                                      .v_cache = cached(kv_bytes(cache.sequences, cache.context)),
                                      .out = w.attended});
  o_.forward(at, gated(at, w, {0, a.tokens.tokens}), a.residual, a.y);
}

}  // namespace megatrain
