#include "megatrain/model/block.h"

#include <algorithm>

#include "megatrain/base/math.h"
#include "megatrain/model/block_qkv.h"
#include "megatrain/model/carve.h"

namespace megatrain {

// Some tokens of an activation that lies whole when it is kept and chunk by chunk when it is not.
struct Chunked {
  View view;  // (T, n) or (C, n)
  bool whole = false;
  View tokens(int64_t begin, int64_t count) const { return view.slice_rows(whole ? begin : 0, count); }
};

namespace {

View gradient(float* grads, int64_t offset, int64_t rows, int64_t cols) {
  return offset < 0 ? View{} : matrix(grads + offset, DType::f32, rows, cols);
}

}  // namespace

struct BlockTemplate::Work {
  View normed;           // (T, H) norm(x)
  float* inv_rms;        // (T)
  View qkv;              // (T, q + 2 kv) as attention reads it
  View product;          // (T, q + 2 kv) before q/k norm and rope, v for attention; without q/k norm it is qkv
  float* q_inv_rms;      // (T * heads) with q/k norm only
  float* k_inv_rms;      // (T * kv_heads)
  View attended;         // (T, q)
  float* lse;            // (heads * T)
  View h;                // (T, H) after attention
  Chunked post_normed;   // (H)
  Chunked post_inv_rms;  // (1) fp32
  Chunked gate_up;       // (2F)
  Chunked act;           // (F)
  View grad_act;         // (C, F)
  View grad_normed;      // (T, H)
  View grad_attended;    // (T, q)
  View grad_qkv;         // (T, q + 2 kv)
  int64_t workspace_bytes, kept_bytes;
};

BlockTemplate::BlockTemplate(const ModelConfig& config, DType dtype, int64_t tokens, int64_t mlp_chunk, RopeTable rope)
    : config_(config),
      at_(block_offsets(config)),
      dtype_(dtype),
      tokens_(tokens),
      chunk_(mlp_chunk > 0 ? std::min(mlp_chunk, tokens) : tokens),
      rope_(rope),
      workspace_bytes_(carve(nullptr, Keep::nothing, nullptr).workspace_bytes) {}

int64_t BlockTemplate::kept_bytes(Keep keep) const { return carve(nullptr, keep, nullptr).kept_bytes; }

BlockTemplate::Work BlockTemplate::carve(std::byte* workspace, Keep keep, std::byte* kept) const {
  const ModelConfig& c = config_;
  Carver work(workspace), keeping(kept);
  const auto from = [&](Keep level) -> Carver& { return keep >= level ? keeping : work; };
  const auto chunked = [&](Keep level, DType dtype, int64_t cols) {
    const bool whole = keep >= level;
    return Chunked{from(level).view(dtype, whole ? tokens_ : chunk_, cols), whole};
  };
  Work w{};
  w.normed = from(Keep::everything).view(dtype_, tokens_, c.hidden);
  w.inv_rms = from(Keep::everything).array<float>(tokens_);
  w.qkv = from(Keep::attention).view(dtype_, tokens_, c.qkv_dim());
  w.product = w.qkv;
  if (c.qk_norm) {
    w.product = from(Keep::attention).view(dtype_, tokens_, c.qkv_dim());
    w.q_inv_rms = from(Keep::attention).array<float>(tokens_ * c.heads);
    w.k_inv_rms = from(Keep::attention).array<float>(tokens_ * c.kv_heads);
  }
  w.attended = from(Keep::attention).view(dtype_, tokens_, c.q_dim());
  w.lse = from(Keep::attention).array<float>(tokens_ * c.heads);
  w.h = from(Keep::attention).view(dtype_, tokens_, c.hidden);
  w.post_normed = chunked(Keep::everything, dtype_, c.hidden);
  w.post_inv_rms = chunked(Keep::everything, DType::f32, 1);
  w.gate_up = chunked(Keep::products, dtype_, 2 * c.ff);
  w.act = chunked(Keep::everything, dtype_, c.ff);
  w.grad_act = work.view(dtype_, chunk_, c.ff);
  w.grad_normed = work.view(dtype_, tokens_, c.hidden);
  w.grad_attended = work.view(dtype_, tokens_, c.q_dim());
  w.grad_qkv = work.view(dtype_, tokens_, c.qkv_dim());
  w.workspace_bytes = work.bytes();
  w.kept_bytes = keeping.bytes();
  return w;
}

// Gradients of a product's weight and bias.
void BlockTemplate::weight_gradients(Ops& ops, Stream& stream, float* grads, const std::vector<LinearGradient>& parts,
                                     const View& grad_out, const View& x, bool accumulate) const {
  for (const LinearGradient& part : parts) {
    ops.linear_backward_weight(stream, {.grad_out = grad_out.slice_cols(part.begin, part.rows),
                                        .x = x,
                                        .grad_weight = gradient(grads, part.weight, part.rows, x.cols),
                                        .grad_bias = gradient(grads, part.bias, 1, part.rows),
                                        .accumulate = accumulate});
  }
}

void BlockTemplate::input_norm(Ops& ops, Stream& stream, const BlockWeights& weights, const View& x,
                               const Work& w) const {
  ops.rmsnorm_forward(stream, {.x = x,
                               .weight = weights.input_norm,
                               .eps = static_cast<float>(config_.norm_eps),
                               .out = w.normed,
                               .inv_rms = w.inv_rms});
}

// From x to work.h: the attention half.
void BlockTemplate::attend(Ops& ops, Stream& stream, const BlockWeights& weights, const Forward& a,
                           const Work& w) const {
  input_norm(ops, stream, weights, a.x, w);
  const QkvViews read = qkv_forward(ops, stream, config_, weights,
                                    {.normed = w.normed,
                                     .product = w.product,
                                     .qkv = w.qkv,
                                     .q_inv_rms = w.q_inv_rms,
                                     .k_inv_rms = w.k_inv_rms,
                                     .positions = a.micro_batch.positions,
                                     .rope = rope_});
  ops.attention_forward(stream, {.shape = attention_shape(config_, a.block, tokens_),
                                 .documents = a.micro_batch.documents,
                                 .q = read.q,
                                 .k = read.k,
                                 .v = read.v,
                                 .out = w.attended,
                                 .lse = w.lse});
  ops.linear_forward(stream,
                     {.x = w.attended, .weight = weights.o, .bias = weights.o_bias, .residual = a.x, .out = w.h});
}

// The MLP's norm and its products before the activation, of tokens [begin, begin + count).
void BlockTemplate::post_norm(Ops& ops, Stream& stream, const BlockWeights& weights, const Work& w, int64_t begin,
                              int64_t count) const {
  ops.rmsnorm_forward(stream, {.x = w.h.slice_rows(begin, count),
                               .weight = weights.post_norm,
                               .eps = static_cast<float>(config_.norm_eps),
                               .out = w.post_normed.tokens(begin, count),
                               .inv_rms = w.post_inv_rms.tokens(begin, count).as<float>()});
}

void BlockTemplate::gate_up(Ops& ops, Stream& stream, const BlockWeights& weights, const Work& w, int64_t begin,
                            int64_t count) const {
  ops.linear_forward(stream, {.x = w.post_normed.tokens(begin, count),
                              .weight = weights.gate_up,
                              .bias = weights.gate_up_bias,
                              .residual = {},
                              .out = w.gate_up.tokens(begin, count)});
}

void BlockTemplate::forward(Ops& ops, Stream& stream, const Forward& a) const {
  const BlockWeights weights = block_weights(config_, at_, dtype_, a.weights);
  const Work w = carve(a.workspace, a.keep, a.kept);
  attend(ops, stream, weights, a, w);
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = std::min(chunk_, tokens_ - begin);
    const View act = w.act.tokens(begin, count);
    post_norm(ops, stream, weights, w, begin, count);
    gate_up(ops, stream, weights, w, begin, count);
    ops.gated_forward(stream, {.gate_up = w.gate_up.tokens(begin, count), .out = act});
    ops.linear_forward(stream, {.x = act,
                                .weight = weights.down,
                                .bias = weights.down_bias,
                                .residual = w.h.slice_rows(begin, count),
                                .out = a.y.slice_rows(begin, count)});
  }
}

void BlockTemplate::backward(Ops& ops, Stream& stream, const Backward& a) const {
  const ModelConfig& c = config_;
  const BlockGradients& to = a.gradients_at;
  const BlockWeights weights = block_weights(config_, at_, dtype_, a.weights);
  const Work w = carve(a.workspace, a.keep, a.kept);
  if (a.keep < Keep::attention) {
    attend(ops, stream, weights,
           {.block = a.block,
            .weights = a.weights,
            .x = a.x,
            .y = {},
            .micro_batch = a.micro_batch,
            .workspace = a.workspace},
           w);
  } else if (a.keep < Keep::everything) {
    input_norm(ops, stream, weights, a.x, w);
  }

  // MLP: a.grad goes from dL/dy to dL/dh, chunk by chunk
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = std::min(chunk_, tokens_ - begin);
    const bool accumulate = a.accumulate || begin > 0;
    const View h = w.h.slice_rows(begin, count), grad = a.grad.slice_rows(begin, count);
    const View act = w.act.tokens(begin, count), gate_up_here = w.gate_up.tokens(begin, count);
    const View grad_act = w.grad_act.slice_rows(0, count), grad_normed = w.grad_normed.slice_rows(0, count);
    if (a.keep < Keep::everything) post_norm(ops, stream, weights, w, begin, count);
    if (a.keep < Keep::products) gate_up(ops, stream, weights, w, begin, count);
    ops.linear_backward_input(stream, {.grad_out = grad, .weight = weights.down, .grad_x = grad_act});
    ops.gated_backward(stream, {.gate_up = gate_up_here,
                                .grad_out = grad_act,
                                .grad_gate_up = gate_up_here,
                                .out = a.keep < Keep::everything ? act : View{}});
    weight_gradients(ops, stream, a.weight_grads, to.down, grad, act, accumulate);
    weight_gradients(ops, stream, a.weight_grads, to.gate_up, gate_up_here, w.post_normed.tokens(begin, count),
                     accumulate);
    ops.linear_backward_input(stream, {.grad_out = gate_up_here, .weight = weights.gate_up, .grad_x = grad_normed});
    ops.rmsnorm_backward(stream, {.x = h,
                                  .weight = weights.post_norm,
                                  .inv_rms = w.post_inv_rms.tokens(begin, count).as<float>(),
                                  .grad_out = grad_normed,
                                  .residual = grad,
                                  .grad_x = grad,
                                  .grad_weight = gradient(a.weight_grads, to.post_norm, 1, c.hidden),
                                  .accumulate = accumulate});
  }

  // attention: a.grad goes from dL/dh to dL/dx
  weight_gradients(ops, stream, a.weight_grads, to.o, a.grad, w.attended, a.accumulate);
  ops.linear_backward_input(stream, {.grad_out = a.grad, .weight = weights.o, .grad_x = w.grad_attended});
  const QkvViews read = split_qkv(c, w.qkv), raw = split_qkv(c, w.product), grads = split_qkv(c, w.grad_qkv);
  ops.attention_backward(stream, {.shape = attention_shape(c, a.block, tokens_),
                                  .documents = a.micro_batch.documents,
                                  .q = read.q,
                                  .k = read.k,
                                  .v = raw.v,
                                  .out = w.attended,
                                  .lse = w.lse,
                                  .grad_out = w.grad_attended,
                                  .grad_q = grads.q,
                                  .grad_k = grads.k,
                                  .grad_v = grads.v});
  ops.rope(stream, {.x = w.grad_qkv.slice_cols(0, c.q_dim() + c.kv_dim()),
                    .heads = c.heads + c.kv_heads,
                    .head_dim = c.head_dim,
                    .rotary_dim = c.head_dim,
                    .positions = a.micro_batch.positions,
                    .cos = rope_.cos,
                    .sin = rope_.sin,
                    .backward = true});
  if (c.qk_norm) {
    ops.rmsnorm_backward(stream, {.x = raw.q,
                                  .weight = weights.q_norm,
                                  .inv_rms = w.q_inv_rms,
                                  .groups = c.heads,
                                  .grad_out = grads.q,
                                  .residual = {},
                                  .grad_x = grads.q,
                                  .grad_weight = gradient(a.weight_grads, to.q_norm, 1, c.head_dim),
                                  .accumulate = a.accumulate});
    ops.rmsnorm_backward(stream, {.x = raw.k,
                                  .weight = weights.k_norm,
                                  .inv_rms = w.k_inv_rms,
                                  .groups = c.kv_heads,
                                  .grad_out = grads.k,
                                  .residual = {},
                                  .grad_x = grads.k,
                                  .grad_weight = gradient(a.weight_grads, to.k_norm, 1, c.head_dim),
                                  .accumulate = a.accumulate});
  }
  weight_gradients(ops, stream, a.weight_grads, to.qkv, w.grad_qkv, w.normed, a.accumulate);
  ops.linear_backward_input(stream, {.grad_out = w.grad_qkv, .weight = weights.qkv, .grad_x = w.grad_normed});
  ops.rmsnorm_backward(stream, {.x = a.x,
                                .weight = weights.input_norm,
                                .inv_rms = w.inv_rms,
                                .grad_out = w.grad_normed,
                                .residual = a.grad,
                                .grad_x = a.grad,
                                .grad_weight = gradient(a.weight_grads, to.input_norm, 1, c.hidden),
                                .accumulate = a.accumulate});
}

}  // namespace megatrain
