#include "megatrain/model/block_decode.h"

#include <algorithm>
#include <cmath>

#include "megatrain/model/carve.h"

namespace megatrain {

struct BlockDecode::Work {
  View normed;     // (T, H)
  float* inv_rms;  // (T * heads) nobody reads it
  View qkv;        // (T, q + 2 kv)
  View attended;   // (T, q)
  View gate_up;    // (T, 2F)
  View act;        // (T, F)
  int64_t bytes;
};

BlockDecode::BlockDecode(const ModelConfig& config, DType dtype, int64_t tokens, RopeTable rope)
    : config_(config),
      at_(block_offsets(config)),
      dtype_(dtype),
      rope_(rope),
      workspace_bytes_(carve(nullptr, tokens).bytes) {}

BlockDecode::Work BlockDecode::carve(std::byte* workspace, int64_t tokens) const {
  const ModelConfig& c = config_;
  Carver carver(workspace);
  Work w{};
  w.normed = carver.view(dtype_, tokens, c.hidden);
  w.inv_rms = carver.array<float>(tokens * c.heads);
  w.qkv = carver.view(dtype_, tokens, c.qkv_dim());
  w.attended = carver.view(dtype_, tokens, c.q_dim());
  w.gate_up = carver.view(dtype_, tokens, 2 * c.ff);
  w.act = carver.view(dtype_, tokens, c.ff);
  w.bytes = carver.bytes();
  return w;
}

View BlockDecode::tensor(std::byte* weights, int64_t offset, int64_t rows, int64_t cols) const {
  return offset < 0 ? View{} : matrix(weights + offset * dtype_bytes(dtype_), dtype_, rows, cols);
}

// x += o(attention(...))
void BlockDecode::attend(Ops& ops, Stream& stream, const Args& a, const Work& w) const {
  const ModelConfig& c = config_;
  const float eps = static_cast<float>(c.norm_eps);
  ops.rmsnorm_forward(stream, {.x = a.x,
                               .weight = tensor(a.weights, at_.input_norm, 1, c.hidden),
                               .eps = eps,
                               .out = w.normed,
                               .inv_rms = w.inv_rms});
  ops.linear_forward(stream, {.x = w.normed,
                              .weight = tensor(a.weights, at_.qkv, c.qkv_dim(), c.hidden),
                              .bias = tensor(a.weights, at_.qkv_bias, 1, c.qkv_dim()),
                              .residual = {},
                              .out = w.qkv});
  const View q = w.qkv.slice_cols(0, c.q_dim());
  const View k = w.qkv.slice_cols(c.q_dim(), c.kv_dim());
  const View v = w.qkv.slice_cols(c.q_dim() + c.kv_dim(), c.kv_dim());
  if (c.qk_norm) {
    ops.rmsnorm_forward(stream, {.x = q,
                                 .weight = tensor(a.weights, at_.q_norm, 1, c.head_dim),
                                 .eps = eps,
                                 .groups = c.heads,
                                 .out = q,
                                 .inv_rms = w.inv_rms});
    ops.rmsnorm_forward(stream, {.x = k,
                                 .weight = tensor(a.weights, at_.k_norm, 1, c.head_dim),
                                 .eps = eps,
                                 .groups = c.kv_heads,
                                 .out = k,
                                 .inv_rms = w.inv_rms});
  }
  ops.rope(stream, {.x = w.qkv.slice_cols(0, c.q_dim() + c.kv_dim()),
                    .heads = c.heads + c.kv_heads,
                    .head_dim = c.head_dim,
                    .positions = a.tokens.positions,
                    .cos = rope_.cos,
                    .sin = rope_.sin,
                    .backward = false});
  ops.attention_cached(stream,
                       {.shape = {.tokens = a.tokens.tokens,
                                  .heads = c.heads,
                                  .kv_heads = c.kv_heads,
                                  .head_dim = c.head_dim,
                                  .window = c.window[static_cast<size_t>(a.block)],
                                  .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)))},
                        .context = a.cache.context,
                        .sequences = a.tokens.sequences,
                        .positions = a.tokens.positions,
                        .q = q,
                        .k = k,
                        .v = v,
                        .k_cache = a.cache.k,
                        .v_cache = a.cache.v,
                        .out = w.attended});
  ops.linear_forward(stream, {.x = w.attended,
                              .weight = tensor(a.weights, at_.o, c.hidden, c.q_dim()),
                              .bias = tensor(a.weights, at_.o_bias, 1, c.hidden),
                              .residual = a.x,
                              .out = a.x});
}

void BlockDecode::run(Ops& ops, Stream& stream, const Args& a) const {
  const ModelConfig& c = config_;
  const Work w = carve(a.workspace, a.tokens.tokens);
  attend(ops, stream, a, w);
  ops.rmsnorm_forward(stream, {.x = a.x,
                               .weight = tensor(a.weights, at_.post_norm, 1, c.hidden),
                               .eps = static_cast<float>(c.norm_eps),
                               .out = w.normed,
                               .inv_rms = w.inv_rms});
  ops.linear_forward(stream, {.x = w.normed,
                              .weight = tensor(a.weights, at_.gate_up, 2 * c.ff, c.hidden),
                              .bias = tensor(a.weights, at_.gate_up_bias, 1, 2 * c.ff),
                              .residual = {},
                              .out = w.gate_up});
  ops.swiglu_forward(stream, {.gate_up = w.gate_up, .out = w.act});
  ops.linear_forward(stream, {.x = w.act,
                              .weight = tensor(a.weights, at_.down, c.hidden, c.ff),
                              .bias = tensor(a.weights, at_.down_bias, 1, c.hidden),
                              .residual = a.x,
                              .out = a.x});
}

}  // namespace megatrain
