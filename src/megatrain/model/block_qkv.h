// What a block's attention reads, made alike in training and in generation.
#pragma once

#include <cstdint>

#include "megatrain/model/block_weights.h"
#include "megatrain/model/config.h"
#include "megatrain/model/rope_table.h"
#include "megatrain/ops/ops.h"

namespace megatrain {

AttentionShape attention_shape(const ModelConfig& config, int64_t block, int64_t tokens);

struct QkvViews {
  View q;     // (T, q)
  View k, v;  // (T, kv)
};

// The columns of (T, q + 2 kv).
QkvViews split_qkv(const ModelConfig& config, const View& qkv);

// The product with its bias, q/k norm where the model has one, and rope.
struct QkvForward {
  View normed;               // (T, H) norm(x)
  View product;              // (T, q + 2 kv) out: before q/k norm. It may be `qkv`; without q/k norm it is
  View qkv;                  // (T, q + 2 kv) out: q and k as attention reads them
  float* q_inv_rms;          // (T * heads) out, with q/k norm only
  float* k_inv_rms;          // (T * kv_heads)
  const int32_t* positions;  // (T)
  RopeTable rope;
};
// What attention reads: q and k of `qkv`, v of `product`.
QkvViews qkv_forward(Ops& ops, Stream& stream, const ModelConfig& config, const BlockWeights& weights,
                     const QkvForward& args);

}  // namespace megatrain
