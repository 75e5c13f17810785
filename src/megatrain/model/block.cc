#include "megatrain/model/block.h"

#include <algorithm>
#include <cmath>

#include "megatrain/base/math.h"
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
  View qkv_raw;          // (T, q + 2 kv) before q/k norm and rope; only with q/k norm
  float* q_inv_rms;      // (T * heads)
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
  if (c.qk_norm) {
    w.qkv_raw = from(Keep::attention).view(dtype_, tokens_, c.qkv_dim());
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

View BlockTemplate::tensor(std::byte* weights, int64_t offset, int64_t rows, int64_t cols) const {
  return offset < 0 ? View{} : matrix(weights + offset * dtype_bytes(dtype_), dtype_, rows, cols);
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

AttentionShape BlockTemplate::attention_shape(int64_t block) const {
  return {.tokens = tokens_,
          .heads = config_.heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.head_dim,
          .window = config_.window[static_cast<size_t>(block)],
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)))};
}

void BlockTemplate::input_norm(Ops& ops, Stream& stream, std::byte* weights, const View& x, const Work& w) const {
  ops.rmsnorm_forward(stream, {.x = x,
                               .weight = tensor(weights, at_.input_norm, 1, config_.hidden),
                               .eps = static_cast<float>(config_.norm_eps),
                               .out = w.normed,
                               .inv_rms = w.inv_rms});
}

// From x to work.h: the attention half.
void BlockTemplate::attend(Ops& ops, Stream& stream, const Forward& a, const Work& w) const {
  const ModelConfig& c = config_;
  const float eps = static_cast<float>(c.norm_eps);
  input_norm(ops, stream, a.weights, a.x, w);
  const View& product = c.qk_norm ? w.qkv_raw : w.qkv;
  ops.linear_forward(stream, {.x = w.normed,
                              .weight = tensor(a.weights, at_.qkv, c.qkv_dim(), c.hidden),
                              .bias = tensor(a.weights, at_.qkv_bias, 1, c.qkv_dim()),
                              .residual = {},
                              .out = product});
  const View q = w.qkv.slice_cols(0, c.q_dim());
  const View k = w.qkv.slice_cols(c.q_dim(), c.kv_dim());
  const View v = product.slice_cols(c.q_dim() + c.kv_dim(), c.kv_dim());
  if (c.qk_norm) {
    ops.rmsnorm_forward(stream, {.x = product.slice_cols(0, c.q_dim()),
                                 .weight = tensor(a.weights, at_.q_norm, 1, c.head_dim),
                                 .eps = eps,
                                 .groups = c.heads,
                                 .out = q,
                                 .inv_rms = w.q_inv_rms});
    ops.rmsnorm_forward(stream, {.x = product.slice_cols(c.q_dim(), c.kv_dim()),
                                 .weight = tensor(a.weights, at_.k_norm, 1, c.head_dim),
                                 .eps = eps,
                                 .groups = c.kv_heads,
                                 .out = k,
                                 .inv_rms = w.k_inv_rms});
  }
  ops.rope(stream, {.x = w.qkv.slice_cols(0, c.q_dim() + c.kv_dim()),
                    .heads = c.heads + c.kv_heads,
                    .head_dim = c.head_dim,
                    .positions = a.micro_batch.positions,
                    .cos = rope_.cos,
                    .sin = rope_.sin,
                    .backward = false});
  ops.attention_forward(stream, {.shape = attention_shape(a.block),
                                 .documents = a.micro_batch.documents,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .out = w.attended,
                                 .lse = w.lse});
  ops.linear_forward(stream, {.x = w.attended,
                              .weight = tensor(a.weights, at_.o, c.hidden, c.q_dim()),
                              .bias = tensor(a.weights, at_.o_bias, 1, c.hidden),
                              .residual = a.x,
                              .out = w.h});
}

// The MLP's norm and its products before the activation, of tokens [begin, begin + count).
void BlockTemplate::post_norm(Ops& ops, Stream& stream, std::byte* weights, const Work& w, int64_t begin,
                              int64_t count) const {
  ops.rmsnorm_forward(stream, {.x = w.h.slice_rows(begin, count),
                               .weight = tensor(weights, at_.post_norm, 1, config_.hidden),
                               .eps = static_cast<float>(config_.norm_eps),
                               .out = w.post_normed.tokens(begin, count),
                               .inv_rms = w.post_inv_rms.tokens(begin, count).as<float>()});
}

void BlockTemplate::gate_up(Ops& ops, Stream& stream, std::byte* weights, const Work& w, int64_t begin,
                            int64_t count) const {
  const ModelConfig& c = config_;
  ops.linear_forward(stream, {.x = w.post_normed.tokens(begin, count),
                              .weight = tensor(weights, at_.gate_up, 2 * c.ff, c.hidden),
                              .bias = tensor(weights, at_.gate_up_bias, 1, 2 * c.ff),
                              .residual = {},
                              .out = w.gate_up.tokens(begin, count)});
}

void BlockTemplate::forward(Ops& ops, Stream& stream, const Forward& a) const {
  const ModelConfig& c = config_;
  const Work w = carve(a.workspace, a.keep, a.kept);
  attend(ops, stream, a, w);
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = std::min(chunk_, tokens_ - begin);
    const View act = w.act.tokens(begin, count);
    post_norm(ops, stream, a.weights, w, begin, count);
    gate_up(ops, stream, a.weights, w, begin, count);
    ops.swiglu_forward(stream, {.gate_up = w.gate_up.tokens(begin, count), .out = act});
    ops.linear_forward(stream, {.x = act,
                                .weight = tensor(a.weights, at_.down, c.hidden, c.ff),
                                .bias = tensor(a.weights, at_.down_bias, 1, c.hidden),
                                .residual = w.h.slice_rows(begin, count),
                                .out = a.y.slice_rows(begin, count)});
  }
}

void BlockTemplate::backward(Ops& ops, Stream& stream, const Backward& a) const {
  const ModelConfig& c = config_;
  const BlockGradients& to = a.gradients_at;
  const Work w = carve(a.workspace, a.keep, a.kept);
  if (a.keep < Keep::attention) {
    attend(ops, stream,
           {.block = a.block,
            .weights = a.weights,
            .x = a.x,
            .y = {},
            .micro_batch = a.micro_batch,
            .workspace = a.workspace},
           w);
  } else if (a.keep < Keep::everything) {
    input_norm(ops, stream, a.weights, a.x, w);
  }

  // MLP: a.grad goes from dL/dy to dL/dh, chunk by chunk
  for (int64_t begin = 0; begin < tokens_; begin += chunk_) {
    const int64_t count = std::min(chunk_, tokens_ - begin);
    const bool accumulate = a.accumulate || begin > 0;
    const View h = w.h.slice_rows(begin, count), grad = a.grad.slice_rows(begin, count);
    const View act = w.act.tokens(begin, count), gate_up_here = w.gate_up.tokens(begin, count);
    const View grad_act = w.grad_act.slice_rows(0, count), grad_normed = w.grad_normed.slice_rows(0, count);
    if (a.keep < Keep::everything) post_norm(ops, stream, a.weights, w, begin, count);
    if (a.keep < Keep::products) gate_up(ops, stream, a.weights, w, begin, count);
    ops.linear_backward_input(
        stream, {.grad_out = grad, .weight = tensor(a.weights, at_.down, c.hidden, c.ff), .grad_x = grad_act});
    ops.swiglu_backward(stream, {.gate_up = gate_up_here,
                                 .grad_out = grad_act,
                                 .grad_gate_up = gate_up_here,
                                 .out = a.keep < Keep::everything ? act : View{}});
    weight_gradients(ops, stream, a.weight_grads, to.down, grad, act, accumulate);
    weight_gradients(ops, stream, a.weight_grads, to.gate_up, gate_up_here, w.post_normed.tokens(begin, count),
                     accumulate);
    ops.linear_backward_input(stream, {.grad_out = gate_up_here,
                                       .weight = tensor(a.weights, at_.gate_up, 2 * c.ff, c.hidden),
                                       .grad_x = grad_normed});
    ops.rmsnorm_backward(stream, {.x = h,
                                  .weight = tensor(a.weights, at_.post_norm, 1, c.hidden),
                                  .inv_rms = w.post_inv_rms.tokens(begin, count).as<float>(),
                                  .grad_out = grad_normed,
                                  .residual = grad,
                                  .grad_x = grad,
                                  .grad_weight = gradient(a.weight_grads, to.post_norm, 1, c.hidden),
                                  .accumulate = accumulate});
  }

  // attention: a.grad goes from dL/dh to dL/dx
  weight_gradients(ops, stream, a.weight_grads, to.o, a.grad, w.attended, a.accumulate);
  ops.linear_backward_input(
      stream, {.grad_out = a.grad, .weight = tensor(a.weights, at_.o, c.hidden, c.q_dim()), .grad_x = w.grad_attended});
  const auto q_of = [&](const View& qkv) { return qkv.slice_cols(0, c.q_dim()); };
  const auto k_of = [&](const View& qkv) { return qkv.slice_cols(c.q_dim(), c.kv_dim()); };
  const auto v_of = [&](const View& qkv) { return qkv.slice_cols(c.q_dim() + c.kv_dim(), c.kv_dim()); };
  ops.attention_backward(stream, {.shape = attention_shape(a.block),
                                  .documents = a.micro_batch.documents,
                                  .q = q_of(w.qkv),
                                  .k = k_of(w.qkv),
                                  .v = v_of(c.qk_norm ? w.qkv_raw : w.qkv),
                                  .out = w.attended,
                                  .lse = w.lse,
                                  .grad_out = w.grad_attended,
                                  .grad_q = q_of(w.grad_qkv),
                                  .grad_k = k_of(w.grad_qkv),
                                  .grad_v = v_of(w.grad_qkv)});
  ops.rope(stream, {.x = w.grad_qkv.slice_cols(0, c.q_dim() + c.kv_dim()),
                    .heads = c.heads + c.kv_heads,
                    .head_dim = c.head_dim,
                    .positions = a.micro_batch.positions,
                    .cos = rope_.cos,
                    .sin = rope_.sin,
                    .backward = true});
  if (c.qk_norm) {
    ops.rmsnorm_backward(stream, {.x = q_of(w.qkv_raw),
                                  .weight = tensor(a.weights, at_.q_norm, 1, c.head_dim),
                                  .inv_rms = w.q_inv_rms,
                                  .groups = c.heads,
                                  .grad_out = q_of(w.grad_qkv),
                                  .residual = {},
                                  .grad_x = q_of(w.grad_qkv),
                                  .grad_weight = gradient(a.weight_grads, to.q_norm, 1, c.head_dim),
                                  .accumulate = a.accumulate});
    ops.rmsnorm_backward(stream, {.x = k_of(w.qkv_raw),
                                  .weight = tensor(a.weights, at_.k_norm, 1, c.head_dim),
                                  .inv_rms = w.k_inv_rms,
                                  .groups = c.kv_heads,
                                  .grad_out = k_of(w.grad_qkv),
                                  .residual = {},
                                  .grad_x = k_of(w.grad_qkv),
                                  .grad_weight = gradient(a.weight_grads, to.k_norm, 1, c.head_dim),
                                  .accumulate = a.accumulate});
  }
  weight_gradients(ops, stream, a.weight_grads, to.qkv, w.grad_qkv, w.normed, a.accumulate);
  ops.linear_backward_input(
      stream,
      {.grad_out = w.grad_qkv, .weight = tensor(a.weights, at_.qkv, c.qkv_dim(), c.hidden), .grad_x = w.grad_normed});
  ops.rmsnorm_backward(stream, {.x = a.x,
                                .weight = tensor(a.weights, at_.input_norm, 1, c.hidden),
                                .inv_rms = w.inv_rms,
                                .grad_out = w.grad_normed,
                                .residual = a.grad,
                                .grad_x = a.grad,
                                .grad_weight = gradient(a.weight_grads, to.input_norm, 1, c.hidden),
                                .accumulate = a.accumulate});
}

}  // namespace megatrain
