#include "megatrain/model/block_qkv.h"

#include <cmath>

namespace megatrain {

AttentionShape attention_shape(const ModelConfig& config, int64_t block, int64_t tokens) {
  return {.tokens = tokens,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .window = config.window[static_cast<size_t>(block)],
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))};
}

QkvViews split_qkv(const ModelConfig& config, const View& qkv) {
  return {.q = qkv.slice_cols(0, config.q_dim()),
          .k = qkv.slice_cols(config.q_dim(), config.kv_dim()),
          .v = qkv.slice_cols(config.q_dim() + config.kv_dim(), config.kv_dim())};
}

QkvViews qkv_forward(Ops& ops, Stream& stream, const ModelConfig& config, const BlockWeights& weights,
                     const QkvForward& a) {
  const float eps = static_cast<float>(config.norm_eps);
  ops.linear_forward(
      stream, {.x = a.normed, .weight = weights.qkv, .bias = weights.qkv_bias, .residual = {}, .out = a.product});
  const QkvViews raw = split_qkv(config, a.product), out = split_qkv(config, a.qkv);
  if (config.qk_norm) {
    ops.rmsnorm_forward(stream, {.x = raw.q,
                                 .weight = weights.q_norm,
                                 .eps = eps,
                                 .groups = config.heads,
                                 .out = out.q,
                                 .inv_rms = a.q_inv_rms});
    ops.rmsnorm_forward(stream, {.x = raw.k,
                                 .weight = weights.k_norm,
                                 .eps = eps,
                                 .groups = config.kv_heads,
                                 .out = out.k,
                                 .inv_rms = a.k_inv_rms});
  }
  ops.rope(stream, {.x = a.qkv.slice_cols(0, config.q_dim() + config.kv_dim()),
                    .heads = config.heads + config.kv_heads,
                    .head_dim = config.head_dim,
                    .rotary_dim = config.head_dim,
                    .positions = a.positions,
                    .cos = a.rope.cos,
                    .sin = a.rope.sin,
                    .backward = false});
  return {.q = out.q, .k = out.k, .v = raw.v};
}

}  // namespace megatrain
