// Attention: softmax(cap(scale q k^T)) v over the documents of a micro-batch, causal, optionally within a sliding
// window.
//
//   q, k, v = rope(qk_norm(qkv(x)))       x: (T, H)   q: (T, heads * head_dim)   k, v: (T, kv_heads * head_dim)
//   y = residual + out_scale o(attention(q, k, v))
//
// With an output gate, a second matmul computes the queries and gates head by head:
//
//   q, gate = gated_q(x)                  gate: (T, heads * head_dim)
//   y = residual + out_scale o(attention(q, k, v) * sigmoid(gate))
//
// A q/k norm is over each head or over all heads, as the size of its weight says.
// With `v_norm` the heads of v are normalised too, without a weight. With `keys_are_values` there is no matmul for v:
// its heads are those of k before their norm.
//
// A layer may share its keys and values, as attention reads them. Its readers have no matmuls for k and v, and attend
// to the shared ones. In backward their gradients are added up before that layer's own.
//
// The record's layout decides which of the optional operands exist: biases, q/k norm, sinks. Gradients of frozen
// tensors are not computed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/model/layers/norm.h"
#include "megatrain/model/layers/rope_table.h"

namespace megatrain {

struct AttentionSizes {
  int64_t heads, kv_heads, head_dim;
  bool keys_are_values, v_norm;
  bool gives_kv = false;               // shares (T, 2 kv): k, then v
  std::optional<SharedRead> reads_kv;  // from which phase; its k and v have the same sizes
  int64_t window;                      // 0: none
  float scale;                         // multiplies q k^T
  float cap = 0;                       // of the logits; 0: none
  double out_scale;
  NormShape norm;  // of q and k
  DType dtype;
  int64_t positions;  // positions in the rotary tables
  bool rotates;       // false: the layer has no RoPE
  RopeConfig rope;
  int64_t rope_at;    // offset of its table within the tables, in floats
  bool gate = false;  // each output is multiplied by the sigmoid of a gate, which q_proj computes beside the query

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t qkv_dim() const { return (gate ? 0 : q_dim()) + (reads_kv ? 0 : 2 * kv_dim()); }
  int64_t raw_dim() const {
    return qkv_dim() - (keys_are_values && !reads_kv ? kv_dim() : 0);
  }  // of the fused matmul's output
};
AttentionSizes attention_sizes(const ModelConfig& config, const ModelShape& shape, int64_t layer);

// The distinct shapes of the model's layers.
std::vector<AttentionShape> attention_shapes(const ModelConfig& config, int64_t tokens);

class Attention final : public Mixer {
 public:
  Attention(const AttentionSizes& sizes, const LinearTensors& from);

  // `outputs` keeps attention's output and its row statistics; `attention` also keeps q, k and v.
  std::vector<Level> keep_levels() const override;
  // What it shares is made again too, as its place serves the micro-batches of every sweep.
  bool out_reads_in() const override { return s_.gate || s_.gives_kv; }
  std::unique_ptr<Mixer::Work> carve(const Space& space) const override;
  int64_t shared_width() const override { return s_.gives_kv ? 2 * s_.kv_dim() : 0; }
  std::optional<SharedRead> reads_shared() const override { return s_.reads_kv; }
  void in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const override;
  void mix(const Binding& at, const Call& call) const override;
  void out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
           const View& y) const override;
  void out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const override;
  void mix_backward(const Binding& at, const Call& call) const override;
  void in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x, const View& grad_x,
                   bool add) const override;

  // Keys, then values: (sequences * context, kv_heads * head_dim) each. A reader has none of its own.
  int64_t cache_bytes(int64_t sequences, int64_t context) const override;
  std::unique_ptr<Mixer::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;
  struct Qkv {
    View q;     // (T, q)
    View k, v;  // (T, kv)
  };
  struct Project;
  struct Turn;
  int64_t kv_bytes(int64_t sequences, int64_t context) const;
  AttentionShape shape(int64_t tokens) const;
  Qkv split(const View& qkv, const View& q, const View& shared_kv = {}) const;
  Qkv split_raw(const View& raw_qkv) const;
  Qkv attended(const View& raw_qkv, const View& qkv, const View& q, const View& shared_kv) const;
  void move_kv(const Binding& at, const View& from, int64_t from_begin, const View& to, int64_t to_begin,
               bool add) const;
  View queries(const View& rows) const;
  View gates(const View& rows) const;
  Qkv project(const Binding& at, const Project& args) const;
  void rope(const Binding& at, const Qkv& qk, const Turn& args, bool backward) const;
  void rotate(const Binding& at, const View& heads, const int32_t* angles, const float* cos, bool backward) const;
  View gated(const Binding& at, const Work& work, const TokenRange& range) const;
  Turn turn_of(const Call& call, const TokenRange& range) const;
  std::vector<AngleRun> runs_of(const MicroBatchView& micro_batch, const TokenRange& range) const;

  AttentionSizes s_;
  Norm q_norm_, k_norm_, v_norm_;
  WeightOperand sinks_;
  Linear gated_q_, qkv_, o_;  // without a gate, qkv_ computes q too
};

}  // namespace megatrain
