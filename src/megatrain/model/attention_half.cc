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
      .positions = shape.positions,
      .rope = local ? *config.window_rope : config.rope,
      .rope_at = local ? rope_floats(config.rope, config.head_dim, shape.positions) : 0};
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

AttentionHalf::Work AttentionHalf::carve(Carver& work, Carver& made, Carver& keeping, Keep keep,
                                         bool more_norms) const {
  const auto from = [&](Keep level) -> Carver& { return keep >= level ? keeping : made; };
  Work w{};
  w.normed = from(Keep::everything).view(s_.dtype, s_.tokens, s_.hidden);
  w.inv_rms = from(Keep::everything).array<float>(s_.tokens);
  w.qkv = from(Keep::attention).view(s_.dtype, s_.tokens, s_.qkv_dim());
  w.product = w.qkv;
  if (q_norm_.offset >= 0) {
    w.product = from(Keep::attention).view(s_.dtype, s_.tokens, s_.qkv_dim());
    w.q_inv_rms = from(Keep::attention).array<float>(s_.tokens * s_.heads);
    w.k_inv_rms = from(Keep::attention).array<float>(s_.tokens * s_.kv_heads);
  }
  w.attended = from(Keep::attention).view(s_.dtype, s_.tokens, s_.q_dim());
  w.lse = from(Keep::attention).array<float>(s_.tokens * s_.heads);
  if (o_norm_.offset >= 0) {
    w.o_out = from(Keep::attention).view(s_.dtype, s_.tokens, s_.hidden);
    w.o_inv_rms = from(Keep::attention).array<float>(s_.tokens);
  }
  w.h = from(Keep::attention).view(s_.dtype, s_.tokens, s_.hidden);
  if (o_norm_.offset >= 0 || more_norms) w.grad_out = work.view(s_.dtype, s_.tokens, s_.hidden);
  w.grad_normed = work.view(s_.dtype, s_.tokens, s_.hidden);
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

std::vector<AngleRun> AttentionHalf::runs_of(const MicroBatchView& micro_batch) const {
  return angle_runs(micro_batch.documents, micro_batch.tokens, s_.rope.long_above());
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

void AttentionHalf::forward(Ops& ops, Stream& stream, std::byte* slab, const View& x, const MicroBatchView& micro_batch,
                            const float* tables, const Work& w) const {
  norm_.forward(ops, stream, input_norm_.weight(slab), x, w.normed, w.inv_rms);
  const Qkv read = qkv_forward(ops, stream, slab,
                               {.normed = w.normed,
                                .product = w.product,
                                .qkv = w.qkv,
                                .q_inv_rms = w.q_inv_rms,
                                .k_inv_rms = w.k_inv_rms,
                                .angles = micro_batch.positions,
                                .runs = runs_of(micro_batch),
                                .tables = tables});
  ops.attention_forward(stream, {.shape = attention_shape(s_.tokens),
                                 .documents = micro_batch.documents,
                                 .q = read.q,
                                 .k = read.k,
                                 .v = read.v,
                                 .sinks = sinks_.weight(slab),
                                 .out = w.attended,
                                 .lse = w.lse});
  if (o_norm_.offset >= 0) {
    project(ops, stream, slab, o_, w.attended, {}, w.o_out);
    norm_.forward(ops, stream, o_norm_.weight(slab), w.o_out, w.h, w.o_inv_rms, x);
  } else {
    project(ops, stream, slab, o_, w.attended, x, w.h);
  }
}

void AttentionHalf::recompute(Ops& ops, Stream& stream, const Phase::Backward& a, const Work& w) const {
  std::byte* slab = a.weights[0];
  if (a.keep < Keep::attention) {
    forward(ops, stream, slab, a.x, a.micro_batch, a.tables, w);
  } else if (a.keep < Keep::everything) {
    norm_.forward(ops, stream, input_norm_.weight(slab), a.x, w.normed, w.inv_rms);
  }
}

// grad_x goes from dL/dh to dL/dx.
void AttentionHalf::backward(Ops& ops, Stream& stream, const Phase::Backward& a, const Work& w) const {
  std::byte* slab = a.weights[0];
  float* grads = a.weight_grads[0];
  View grad_o = a.grad_x;
  if (o_norm_.offset >= 0) {
    grad_o = w.grad_out;
    norm_.backward(ops, stream,
                   {.x = w.o_out,
                    .weight = o_norm_.weight(slab),
                    .inv_rms = w.o_inv_rms,
                    .grad_out = a.grad_x,
                    .residual = {},
                    .grad_x = grad_o,
                    .grad_weight = o_norm_.gradient(grads),
                    .accumulate = a.accumulate});
  }
  weight_gradients(ops, stream, grads, o_, grad_o, w.attended, a.accumulate);
  ops.linear_backward_input(stream, {.grad_out = grad_o, .weight = o_.weight.weight(slab), .grad_x = w.grad_attended});
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
                                  .grad_sinks = sinks_.gradient(grads),
                                  .accumulate = a.accumulate});
  rope(ops, stream, w.grad_qkv, a.micro_batch.positions, runs_of(a.micro_batch), a.tables, true);
  if (q_norm_.offset >= 0) {
    norm_.backward(ops, stream,
                   {.x = raw.q,
                    .weight = q_norm_.weight(slab),
                    .inv_rms = w.q_inv_rms,
                    .grad_out = grad.q,
                    .residual = {},
                    .grad_x = grad.q,
                    .grad_weight = q_norm_.gradient(grads),
                    .accumulate = a.accumulate});
    norm_.backward(ops, stream,
                   {.x = raw.k,
                    .weight = k_norm_.weight(slab),
                    .inv_rms = w.k_inv_rms,
                    .grad_out = grad.k,
                    .residual = {},
                    .grad_x = grad.k,
                    .grad_weight = k_norm_.gradient(grads),
                    .accumulate = a.accumulate});
  }
  weight_gradients(ops, stream, grads, qkv_, w.grad_qkv, w.normed, a.accumulate);
  ops.linear_backward_input(stream,
                            {.grad_out = w.grad_qkv, .weight = qkv_.weight.weight(slab), .grad_x = w.grad_normed});
  norm_.backward(ops, stream,
                 {.x = a.x,
                  .weight = input_norm_.weight(slab),
                  .inv_rms = w.inv_rms,
                  .grad_out = w.grad_normed,
                  .residual = a.grad_x,
                  .grad_x = a.grad_x,
                  .grad_weight = input_norm_.gradient(grads),
                  .accumulate = a.accumulate});
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
