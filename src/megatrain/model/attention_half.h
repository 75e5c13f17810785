// The half of a block that mixes tokens:
//
//   h = x + o(attention(rope(qk_norm(qkv(norm(x))))))       x, h: (T, H)
//
// Where the record has one, a norm of its own stands behind o, before the sum. All but attention itself runs over
// ranges of `chunk` tokens, forward and backward alike. Gradients of frozen tensors are not computed.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/carve.h"
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
    sinks,         // (heads)
  };
};

// Which optional operands there are is said by the record's layout.
struct AttentionHalfShape {
  int64_t hidden;
  int64_t heads, kv_heads, head_dim;
  int64_t window;  // 0: none
  float eps, norm_offset;
  float scale;  // of q k^T
  DType dtype;
  int64_t tokens;
  int64_t chunk;      // tokens of a range
  int64_t positions;  // of the rotary tables
  RopeConfig rope;
  int64_t rope_at;  // where its table begins among the tables, in floats

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
  std::vector<TokenRange> ranges() const;  // of a micro-batch, in order
};
AttentionHalfShape attention_half_shape(const ModelConfig& config, const ModelShape& shape, int64_t layer);

// A product with its bias; `residual` may be empty.
void project(Ops& ops, Stream& stream, std::byte* slab, const LinearOperands& linear, const View& x,
             const View& residual, const View& out);

// A norm over groups of its weight's size.
struct BlockNorm {
  float eps = 0, offset = 0;
  void forward(Ops& ops, Stream& stream, const View& weight, const View& x, const View& out, float* inv_rms,
               const View& residual = {}) const;
  void backward(Ops& ops, Stream& stream, RmsNormBackward args) const;
};

class AttentionHalf {
 public:
  AttentionHalf(const AttentionHalfShape& shape, const LayerLayout& record);

  // Views of what is kept and of the workspace.
  struct Work {
    Chunked normed;      // (H) norm(x)
    float* inv_rms;      // (T)
    View qkv;            // (T, q + 2 kv) as attention reads it
    View product;        // (T, q + 2 kv) before q/k norm and rope, v for attention; without q/k norm it is qkv
    float* q_inv_rms;    // (T * heads) with q/k norm only
    float* k_inv_rms;    // (T * kv_heads)
    View attended;       // (T, q)
    float* lse;          // (heads * T)
    Chunked o_out;       // (H) o's product, with a norm behind it only
    float* o_inv_rms;    // (T)
    Chunked h;           // (H)
    View grad_out;       // (C, H) of a product with a norm behind it
    View grad_normed;    // (C, H)
    View grad_attended;  // (T, q)
    View grad_qkv;       // (T, q + 2 kv)
  };
  // What is not kept lies in `made`, gradients in `work`, which may be the same. `whole_h`: h is read after other
  // ranges have been computed. `more_norms`: the rest of the block has a norm behind a product too, and uses grad_out.
  Work carve(Carver& work, Carver& made, Carver& keeping, Keep keep, bool whole_h, bool more_norms) const;

  // From x to work.attended, all tokens. `attend`: false where attention's output is there and only q, k and v are not.
  void mix(Ops& ops, Stream& stream, std::byte* slab, const View& x, const MicroBatchView& micro_batch,
           const float* tables, const Work& work, bool attend) const;
  // From there to work.h.
  void project_out(Ops& ops, Stream& stream, std::byte* slab, const View& x, const Work& work,
                   const TokenRange& range) const;
  // grad_x has dL/dh and keeps it; makes grad_attended. The record is the phase's first.
  void project_out_backward(Ops& ops, Stream& stream, const Phase::Backward& args, const Work& work,
                            const TokenRange& range) const;
  // grad_x goes from dL/dh to dL/dx, once grad_attended is there of all tokens.
  void mix_backward(Ops& ops, Stream& stream, const Phase::Backward& args, const Work& work) const;

  struct DecodeWork {
    View normed;     // (T, H)
    float* inv_rms;  // (T * heads) nothing reads it
    View qkv;        // (T, q + 2 kv)
    View attended;   // (T, q)
  };
  DecodeWork carve_decode(Carver& carver, int64_t tokens) const;
  // From x to h in args.y.
  void decode(Ops& ops, Stream& stream, const Phase::Decode& args, const DecodeWork& work) const;

  const AttentionHalfShape& shape() const { return s_; }
  const BlockNorm& norm() const { return norm_; }

 private:
  struct Qkv {
    View q;     // (T, q)
    View k, v;  // (T, kv)
  };
  struct QkvForward;
  AttentionShape attention_shape(int64_t tokens) const;
  Qkv split_qkv(const View& qkv) const;
  Qkv qkv_forward(Ops& ops, Stream& stream, std::byte* slab, const QkvForward& args) const;
  void qkv_backward(Ops& ops, Stream& stream, const Phase::Backward& args, const Work& work,
                    const TokenRange& range) const;
  void rope(Ops& ops, Stream& stream, const View& qkv, const int32_t* angles, const std::vector<AngleRun>& runs,
            const float* tables, bool backward) const;
  std::vector<AngleRun> runs_of(const MicroBatchView& micro_batch, const TokenRange& range) const;

  AttentionHalfShape s_;
  BlockNorm norm_;
  WeightOperand input_norm_, q_norm_, k_norm_, o_norm_, sinks_;
  LinearOperands qkv_, o_;
};

}  // namespace megatrain
