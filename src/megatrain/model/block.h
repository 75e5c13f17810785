// The dense block: one phase over one record.
//
//   h = x + o(attention(rope(qk_norm(qkv(norm(x))))))       x, h, y: (T, H)
//   y = h + down(gated(gate_up(norm(h))))
//
// Where the record has them, norms of their own stand behind o and down, before the sum.
// The MLP, its norm included, runs in chunks of mlp_chunk tokens, forward and backward alike. Gradients of frozen
// tensors are not computed.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/config.h"
#include "megatrain/model/layer.h"
#include "megatrain/model/operand.h"
#include "megatrain/model/rope_table.h"

namespace megatrain {

// The numbers that a block's tensors carry as their operand.
struct BlockOperand {
  enum : int {
    input_norm,    // (H)
    qkv,           // (q + 2 kv, H)
    qkv_bias,      // (q + 2 kv)
    q_norm,        // (head_dim)
    k_norm,        // (head_dim)
    o,             // (H, q)
    o_bias,        // (H)
    post_norm,     // (H)
    gate_up,       // (2F, H)
    gate_up_bias,  // (2F)
    down,          // (H, F)
    down_bias,     // (H)
    o_norm,        // (H) behind o
    down_norm,     // (H) behind down
  };
};

// The sizes of one block; which optional operands it has is said by its layout.
struct BlockShape {
  int64_t hidden, ff;
  int64_t heads, kv_heads, head_dim;
  int64_t window;  // 0: none
  float eps, norm_offset;
  float scale;  // of q k^T
  Activation activation;
  DType dtype;
  int64_t tokens, mlp_chunk;
  int64_t positions;  // of the rotary tables
  RopeConfig rope;
  int64_t rope_at;  // where its table begins among the tables, in floats

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
};
BlockShape block_shape(const ModelConfig& config, const ModelShape& shape, int64_t layer);

class DenseBlock final : public Phase {
 public:
  DenseBlock(const BlockShape& shape, const LayerLayout& record);

  std::vector<int64_t> records() const override { return {0}; }
  int64_t in_width() const override { return s_.hidden; }
  int64_t out_width() const override { return s_.hidden; }
  int64_t workspace_bytes() const override;
  int64_t kept_bytes(Keep keep) const override;
  void forward(Ops& ops, Stream& stream, const Forward& args) const override;
  void backward(Ops& ops, Stream& stream, const Backward& args) const override;
  int64_t cache_width() const override { return s_.kv_dim(); }
  int64_t decode_workspace_bytes(int64_t tokens) const override;
  void decode(Ops& ops, Stream& stream, const Decode& args) const override;

 private:
  struct Work;        // views of what is kept and of the workspace
  struct DecodeWork;  // of generation's workspace
  struct Qkv {
    View q;     // (T, q)
    View k, v;  // (T, kv)
  };
  struct QkvForward;
  Work carve(std::byte* workspace, Keep keep, std::byte* kept) const;
  DecodeWork carve_decode(std::byte* workspace, int64_t tokens) const;
  AttentionShape attention_shape(int64_t tokens) const;
  Qkv split_qkv(const View& qkv) const;
  Qkv qkv_forward(Ops& ops, Stream& stream, std::byte* slab, const QkvForward& args) const;
  void norm(Ops& ops, Stream& stream, const View& weight, const View& x, const View& out, float* inv_rms,
            const View& residual = {}) const;
  void norm_backward(Ops& ops, Stream& stream, RmsNormBackward args) const;
  void rope(Ops& ops, Stream& stream, const View& qkv, const int32_t* angles, const std::vector<AngleRun>& runs,
            const float* tables, bool backward) const;
  std::vector<AngleRun> runs_of(const MicroBatchView& micro_batch) const;
  void attend(Ops& ops, Stream& stream, std::byte* slab, const View& x, const MicroBatchView& micro_batch,
              const float* tables, const Work& work) const;
  View down_norm_backward(Ops& ops, Stream& stream, const Backward& args, const Work& work, int64_t begin,
                          int64_t count) const;
  void mlp_backward(Ops& ops, Stream& stream, const Backward& args, const Work& work) const;
  void attention_backward(Ops& ops, Stream& stream, const Backward& args, const Work& work) const;

  BlockShape s_;
  WeightOperand input_norm_, q_norm_, k_norm_, post_norm_, o_norm_, down_norm_;
  LinearOperands qkv_, o_, gate_up_, down_;
};

}  // namespace megatrain
