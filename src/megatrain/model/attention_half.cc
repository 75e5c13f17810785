#include "megatrain/model/attention_half.h"

#include <algorithm>
#include <cmath>

namespace megatrain {

void project(Ops& ops, Stream& stream, std::byte* slab, const LinearOperands& linear, const View& x,
             const View& residual, const View& out) {
  ops.linear_forward(stream, {.x = x,
                              .weight = linear.weight.weight(slab),
                              .bias = linear.bias.weight(slab),
                              .residual = residual,
                              .out = out});
}

void BlockNorm::forward(Ops& ops, Stream& stream, const View& weight, const View& x, const View& out, float* inv_rms,
                        const View& residual) const {
  ops.rmsnorm_forward(stream, {.x = x,
                               .weight = weight,
                               .weight_offset = offset,
                               .eps = eps,
                               .groups = x.cols / weight.cols,
                               .residual = residual,
                               .out = out,
                               .inv_rms = inv_rms});
}

void BlockNorm::backward(Ops& ops, Stream& stream, RmsNormBackward args) const {
  args.weight_offset = offset;
  args.groups = args.x.cols / args.weight.cols;
  ops.rmsnorm_backward(stream, args);
}

// What attention reads: the product with its bias, q/k norm where the block has one, and rope.
struct AttentionHalf::QkvForward {
  View normed;            // (T, H) norm(x)
  View product;           // (T, q + 2 kv) out: before q/k norm. It may be `qkv`; without q/k norm it is
  View qkv;               // (T, q + 2 kv) out: q and k as attention reads them
  float* q_inv_rms;       // (T * heads) out, with q/k norm only
  float* k_inv_rms;       // (T * kv_heads)
  const int32_t* angles;  // (T) rows of the tables
  std::vector<AngleRun> runs;
  const float* tables;
};

AttentionHalfShape attention_half_shape(const ModelConfig& config, const ModelShape& shape, int64_t layer) {
  const bool local = config.window_rope && config.window[static_cast<size_t>(layer)] > 0;
  return {
      .hidden = config.hidden,
      .heads = config.heads,
      .kv_heads = config.kv_heads,
      .head_dim = config.head_dim,
      .window = config.window[static_cast<size_t>(layer)],
      .eps = static_cast<float>(config.norm_eps),
      .norm_offset = static_cast<float>(config.norm_offset),
      .scale = static_cast<float>(config.attention_scale > 0 ? config.attention_scale
                                                             : 1.0 / std::sqrt(static_cast<double>(config.head_dim))),
      .dtype = shape.dtype,
      .tokens = shape.tokens,
      .chunk = shape.mlp_chunk > 0 ? std::min(shape.mlp_chunk, shape.tokens) : shape.tokens,
      .positions = shape.positions,
      .rope = local ? *config.window_rope : config.rope,
      .rope_at = local ? rope_floats(config.rope, config.head_dim, shape.positions) : 0};
}

std::vector<TokenRange> AttentionHalfShape::ranges() const {
  std::vector<TokenRange> list;
  for (int64_t begin = 0; begin < tokens; begin += chunk) list.push_back({begin, std::min(chunk, tokens - begin)});
  return list;
}

AttentionHalf::AttentionHalf(const AttentionHalfShape& shape, const LayerLayout& record)
    : s_(shape),
      norm_{.eps = shape.eps, .offset = shape.norm_offset},
      input_norm_(find_operand(record, BlockOperand::input_norm)),
      q_norm_(find_operand(record, BlockOperand::q_norm)),
      k_norm_(find_operand(record, BlockOperand::k_norm)),
      o_norm_(find_operand(record, BlockOperand::o_norm)),
      sinks_(find_operand(record, BlockOperand::sinks)),
      qkv_(find_linear(record, BlockOperand::qkv, BlockOperand::qkv_bias)),
      o_(find_linear(record, BlockOperand::o, BlockOperand::o_bias)) {}

AttentionHalf::Work AttentionHalf::carve(Carver& work, Carver& made, Carver& keeping, Keep keep, bool whole_h,
                                         bool more_norms) const {
  const auto from = [&](Keep level) -> Carver& { return keep >= level ? keeping : made; };
  const auto chunked = [&](Keep level, bool always_whole) {
    const bool whole = keep >= level || always_whole;
    return Chunked{from(level).view(s_.dtype, whole ? s_.tokens : s_.chunk, s_.hidden), whole};
  };
  Work w{};
  w.normed = chunked(Keep::everything, false);
  w.inv_rms = from(Keep::everything).array<float>(s_.tokens);
  w.qkv = from(Keep::attention).view(s_.dtype, s_.tokens, s_.qkv_dim());
  w.product = w.qkv;
  if (q_norm_.offset >= 0) {
    w.product = from(Keep::attention).view(s_.dtype, s_.tokens, s_.qkv_dim());
    w.q_inv_rms = from(Keep::attention).array<float>(s_.tokens * s_.heads);
    w.k_inv_rms = from(Keep::attention).array<float>(s_.tokens * s_.kv_heads);
  }
  w.attended = from(Keep::outputs).view(s_.dtype, s_.tokens, s_.q_dim());
  w.lse = from(Keep::outputs).array<float>(s_.tokens * s_.heads);
  if (o_norm_.offset >= 0) {
    w.o_out = chunked(Keep::attention, whole_h);
    w.o_inv_rms = from(Keep::attention).array<float>(s_.tokens);
  }
  w.h = chunked(Keep::attention, whole_h);
  if (o_norm_.offset >= 0 || more_norms) w.grad_out = work.view(s_.dtype, s_.chunk, s_.hidden);
  w.grad_normed = work.view(s_.dtype, s_.chunk, s_.hidden);
  w.grad_attended = work.view(s_.dtype, s_.tokens, s_.q_dim());
  w.grad_qkv = work.view(s_.dtype, s_.tokens, s_.qkv_dim());
  return w;
}

AttentionShape AttentionHalf::attention_shape(int64_t tokens) const {
  return {.tokens = tokens,
          .heads = s_.heads,
          .kv_heads = s_.kv_heads,
          .head_dim = s_.head_dim,
          .window = s_.window,
          .scale = s_.scale};
}

// The columns of (T, q + 2 kv).
AttentionHalf::Qkv AttentionHalf::split_qkv(const View& qkv) const {
  return {.q = qkv.slice_cols(0, s_.q_dim()),
          .k = qkv.slice_cols(s_.q_dim(), s_.kv_dim()),
          .v = qkv.slice_cols(s_.q_dim() + s_.kv_dim(), s_.kv_dim())};
}

// Counted from the range's first token.
std::vector<AngleRun> AttentionHalf::runs_of(const MicroBatchView& micro_batch, const TokenRange& range) const {
  std::vector<AngleRun> runs;
  for (const AngleRun& run : angle_runs(micro_batch.documents, micro_batch.tokens, s_.rope.long_above())) {
    const int64_t begin = std::max(run.begin, range.begin),
                  end = std::min(run.begin + run.count, range.begin + range.count);
    if (begin < end) runs.push_back({begin - range.begin, end - begin, run.in_long});
  }
  return runs;
}

void AttentionHalf::rope(Ops& ops, Stream& stream, const View& qkv, const int32_t* angles,
                         const std::vector<AngleRun>& runs, const float* tables, bool backward) const {
  const int64_t turning = s_.rope.turning(s_.head_dim), half = turning / 2;
  for (const AngleRun& run : runs) {
    const float* cos = tables + s_.rope_at + (run.in_long ? s_.positions * half : 0);
    ops.rope(stream, {.x = qkv.slice_rows(run.begin, run.count).slice_cols(0, s_.q_dim() + s_.kv_dim()),
                      .heads = s_.heads + s_.kv_heads,
                      .head_dim = s_.head_dim,
                      .rotary_dim = turning,
                      .positions = angles + run.begin,
                      .cos = cos,
                      .sin = cos + rope_rows(s_.rope, s_.positions) * half,
                      .backward = backward});
  }
}

// What attention reads: q and k of `qkv`, v of `product`.
AttentionHalf::Qkv AttentionHalf::qkv_forward(Ops& ops, Stream& stream, std::byte* slab, const QkvForward& a) const {
  project(ops, stream, slab, qkv_, a.normed, {}, a.product);
  const Qkv raw = split_qkv(a.product), out = split_qkv(a.qkv);
  if (q_norm_.offset >= 0) {
    norm_.forward(ops, stream, q_norm_.weight(slab), raw.q, out.q, a.q_inv_rms);
    norm_.forward(ops, stream, k_norm_.weight(slab), raw.k, out.k, a.k_inv_rms);
  }
  rope(ops, stream, a.qkv, a.angles, a.runs, a.tables, false);
  return {.q = out.q, .k = out.k, .v = raw.v};
}

void AttentionHalf::mix(Ops& ops, Stream& stream, std::byte* slab, const View& x, const MicroBatchView& micro_batch,
                        const float* tables, const Work& w, bool attend) const {
  const bool head_norms = q_norm_.offset >= 0;
  for (const TokenRange& range : s_.ranges()) {
    const View normed = w.normed.at(range);
    const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
    norm_.forward(ops, stream, input_norm_.weight(slab), rows(x), normed, w.inv_rms + range.begin);
    qkv_forward(ops, stream, slab,
                {.normed = normed,
                 .product = rows(w.product),
                 .qkv = rows(w.qkv),
                 .q_inv_rms = head_norms ? w.q_inv_rms + range.begin * s_.heads : nullptr,
                 .k_inv_rms = head_norms ? w.k_inv_rms + range.begin * s_.kv_heads : nullptr,
                 .angles = micro_batch.positions + range.begin,
                 .runs = runs_of(micro_batch, range),
                 .tables = tables});
  }
  if (!attend) return;
  const Qkv read = split_qkv(w.qkv), raw = split_qkv(w.product);
  ops.attention_forward(stream, {.shape = attention_shape(s_.tokens),
                                 .documents = micro_batch.documents,
                                 .q = read.q,
                                 .k = read.k,
                                 .v = raw.v,
                                 .sinks = sinks_.weight(slab),
                                 .out = w.attended,
                                 .lse = w.lse});
}

void AttentionHalf::project_out(Ops& ops, Stream& stream, std::byte* slab, const View& x, const Work& w,
                                const TokenRange& range) const {
  const View residual = x.slice_rows(range.begin, range.count),
             attended = w.attended.slice_rows(range.begin, range.count), h = w.h.at(range);
  if (o_norm_.offset >= 0) {
    const View out = w.o_out.at(range);
    project(ops, stream, slab, o_, attended, {}, out);
    norm_.forward(ops, stream, o_norm_.weight(slab), out, h, w.o_inv_rms + range.begin, residual);
  } else {
    project(ops, stream, slab, o_, attended, residual, h);
  }
}

void AttentionHalf::project_out_backward(Ops& ops, Stream& stream, const Phase::Backward& a, const Work& w,
                                         const TokenRange& range) const {
  std::byte* slab = a.weights[0];
  float* grads = a.weight_grads[0];
  const bool accumulate = a.accumulate || range.begin > 0;
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  View grad_o = rows(a.grad_x);
  if (o_norm_.offset >= 0) {
    const View grad_h = grad_o;
    grad_o = w.grad_out.slice_rows(0, range.count);
    norm_.backward(ops, stream,
                   {.x = w.o_out.at(range),
                    .weight = o_norm_.weight(slab),
                    .inv_rms = w.o_inv_rms + range.begin,
                    .grad_out = grad_h,
                    .residual = {},
                    .grad_x = grad_o,
                    .grad_weight = o_norm_.gradient(grads),
                    .accumulate = accumulate});
  }
  weight_gradients(ops, stream, grads, o_, grad_o, rows(w.attended), accumulate);
  ops.linear_backward_input(stream,
                            {.grad_out = grad_o, .weight = o_.weight.weight(slab), .grad_x = rows(w.grad_attended)});
}

void AttentionHalf::mix_backward(Ops& ops, Stream& stream, const Phase::Backward& a, const Work& w) const {
  std::byte* slab = a.weights[0];
  const Qkv read = split_qkv(w.qkv), raw = split_qkv(w.product), grad = split_qkv(w.grad_qkv);
  ops.attention_backward(stream, {.shape = attention_shape(s_.tokens),
                                  .documents = a.micro_batch.documents,
                                  .q = read.q,
                                  .k = read.k,
                                  .v = raw.v,
                                  .sinks = sinks_.weight(slab),
                                  .out = w.attended,
                                  .lse = w.lse,
                                  .grad_out = w.grad_attended,
                                  .grad_q = grad.q,
                                  .grad_k = grad.k,
                                  .grad_v = grad.v,
                                  .grad_sinks = sinks_.gradient(a.weight_grads[0]),
                                  .accumulate = a.accumulate});
  for (const TokenRange& range : s_.ranges()) qkv_backward(ops, stream, a, w, range);
}

// From the gradients of q, k and v to those of the weights and of x.
void AttentionHalf::qkv_backward(Ops& ops, Stream& stream, const Phase::Backward& a, const Work& w,
                                 const TokenRange& range) const {
  std::byte* slab = a.weights[0];
  float* grads = a.weight_grads[0];
  const bool accumulate = a.accumulate || range.begin > 0;
  const auto rows = [&](const View& view) { return view.slice_rows(range.begin, range.count); };
  const View grad_qkv = rows(w.grad_qkv), x = rows(a.x), grad_x = rows(a.grad_x), normed = w.normed.at(range);
  float* inv_rms = w.inv_rms + range.begin;
  rope(ops, stream, grad_qkv, a.micro_batch.positions + range.begin, runs_of(a.micro_batch, range), a.tables, true);
  if (q_norm_.offset >= 0) {
    const Qkv raw = split_qkv(rows(w.product)), grad = split_qkv(grad_qkv);
    const auto head_norm = [&](const WeightOperand& norm, const View& of, const float* of_inv_rms,
                               const View& grads_of) {
      norm_.backward(ops, stream,
                     {.x = of,
                      .weight = norm.weight(slab),
                      .inv_rms = of_inv_rms,
                      .grad_out = grads_of,
                      .residual = {},
                      .grad_x = grads_of,
                      .grad_weight = norm.gradient(grads),
                      .accumulate = accumulate});
    };
    head_norm(q_norm_, raw.q, w.q_inv_rms + range.begin * s_.heads, grad.q);
    head_norm(k_norm_, raw.k, w.k_inv_rms + range.begin * s_.kv_heads, grad.k);
  }
  const bool made_again = a.keep < Keep::attention && range.count == s_.tokens;  // by mix(), and still there
  if (a.keep < Keep::everything && !made_again)
    norm_.forward(ops, stream, input_norm_.weight(slab), x, normed, inv_rms);
  weight_gradients(ops, stream, grads, qkv_, grad_qkv, normed, accumulate);
  const View grad_normed = w.grad_normed.slice_rows(0, range.count);
  ops.linear_backward_input(stream, {.grad_out = grad_qkv, .weight = qkv_.weight.weight(slab), .grad_x = grad_normed});
  norm_.backward(ops, stream,
                 {.x = x,
                  .weight = input_norm_.weight(slab),
                  .inv_rms = inv_rms,
                  .grad_out = grad_normed,
                  .residual = grad_x,
                  .grad_x = grad_x,
                  .grad_weight = input_norm_.gradient(grads),
                  .accumulate = accumulate});
}

AttentionHalf::DecodeWork AttentionHalf::carve_decode(Carver& carver, int64_t tokens) const {
  return {.normed = carver.view(s_.dtype, tokens, s_.hidden),
          .inv_rms = carver.array<float>(tokens * s_.heads),
          .qkv = carver.view(s_.dtype, tokens, s_.qkv_dim()),
          .attended = carver.view(s_.dtype, tokens, s_.q_dim())};
}

void AttentionHalf::decode(Ops& ops, Stream& stream, const Phase::Decode& a, const DecodeWork& w) const {
  std::byte* slab = a.weights[0];
  norm_.forward(ops, stream, input_norm_.weight(slab), a.x, w.normed, w.inv_rms);
  const Qkv read = qkv_forward(ops, stream, slab,
                               {.normed = w.normed,
                                .product = w.qkv,
                                .qkv = w.qkv,
                                .q_inv_rms = w.inv_rms,
                                .k_inv_rms = w.inv_rms,
                                .angles = a.tokens.angles,
                                .runs = {{0, a.tokens.tokens, false}},
                                .tables = a.tables});
  ops.attention_cached(stream, {.shape = attention_shape(a.tokens.tokens),
                                .context = a.cache.context,
                                .sequences = a.tokens.sequences,
                                .positions = a.tokens.positions,
                                .q = read.q,
                                .k = read.k,
                                .v = read.v,
                                .sinks = sinks_.weight(slab),
                                .k_cache = a.cache.k,
                                .v_cache = a.cache.v,
                                .out = w.attended});
  if (o_norm_.offset >= 0) {
    project(ops, stream, slab, o_, w.attended, {}, w.normed);
    norm_.forward(ops, stream, o_norm_.weight(slab), w.normed, a.y, w.inv_rms, a.x);
  } else {
    project(ops, stream, slab, o_, w.attended, a.x, a.y);
  }
}

}  // namespace megatrain
