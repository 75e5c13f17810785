#include "megatrain/model/block_decode.h"

#include "megatrain/model/block_qkv.h"
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

// x += o(attention(...))
void BlockDecode::attend(Ops& ops, Stream& stream, const BlockWeights& weights, const Args& a, const Work& w) const {
  ops.rmsnorm_forward(stream, {.x = a.x,
                               .weight = weights.input_norm,
                               .eps = static_cast<float>(config_.norm_eps),
                               .out = w.normed,
                               .inv_rms = w.inv_rms});
  const QkvViews read = qkv_forward(ops, stream, config_, weights,
                                    {.normed = w.normed,
                                     .product = w.qkv,
                                     .qkv = w.qkv,
                                     .q_inv_rms = w.inv_rms,
                                     .k_inv_rms = w.inv_rms,
                                     .positions = a.tokens.positions,
                                     .rope = rope_});
  ops.attention_cached(stream, {.shape = attention_shape(config_, a.block, a.tokens.tokens),
                                .context = a.cache.context,
                                .sequences = a.tokens.sequences,
                                .positions = a.tokens.positions,
                                .q = read.q,
                                .k = read.k,
                                .v = read.v,
                                .k_cache = a.cache.k,
                                .v_cache = a.cache.v,
                                .out = w.attended});
  ops.linear_forward(stream,
                     {.x = w.attended, .weight = weights.o, .bias = weights.o_bias, .residual = a.x, .out = a.x});
}

void BlockDecode::run(Ops& ops, Stream& stream, const Args& a) const {
  const BlockWeights weights = block_weights(config_, at_, dtype_, a.weights);
  const Work w = carve(a.workspace, a.tokens.tokens);
  attend(ops, stream, weights, a, w);
  ops.rmsnorm_forward(stream, {.x = a.x,
                               .weight = weights.post_norm,
                               .eps = static_cast<float>(config_.norm_eps),
                               .out = w.normed,
                               .inv_rms = w.inv_rms});
  ops.linear_forward(
      stream,
      {.x = w.normed, .weight = weights.gate_up, .bias = weights.gate_up_bias, .residual = {}, .out = w.gate_up});
  ops.gated_forward(stream, {.gate_up = w.gate_up, .out = w.act});
  ops.linear_forward(stream,
                     {.x = w.act, .weight = weights.down, .bias = weights.down_bias, .residual = a.x, .out = a.x});
}

}  // namespace megatrain
