// The dense block: one phase over one record.
//
//   h = x + the attention half (attention_half.h)           x, h, y: (T, H)
//   y = h + down(gated(gate_up(norm(h))))
//
// Where the record has one, a norm of its own stands behind down, before the sum.
// All but attention itself runs over ranges of tokens, so that what grows with the tokens of a micro-batch is q, k, v,
// attention's output and their gradients. Gradients of frozen tensors are not computed.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/attention_half.h"

namespace megatrain {

// The sizes of one block; which optional operands it has is said by its layout.
struct BlockShape {
  AttentionHalfShape attention;
  int64_t ff;
  Activation activation;
};
BlockShape block_shape(const ModelConfig& config, const ModelShape& shape, int64_t layer);

class DenseBlock final : public Phase {
 public:
  DenseBlock(const BlockShape& shape, const LayerLayout& record);

  std::vector<int64_t> records() const override { return {0}; }
  int64_t in_width() const override { return s_.attention.hidden; }
  int64_t out_width() const override { return s_.attention.hidden; }
  int64_t workspace_bytes() const override;
  int64_t kept_bytes(Keep keep) const override;
  void forward(Ops& ops, Stream& stream, const Forward& args) const override;
  void backward(Ops& ops, Stream& stream, const Backward& args) const override;
  int64_t cache_width() const override { return s_.attention.kv_dim(); }
  int64_t decode_workspace_bytes(int64_t tokens) const override;
  void decode(Ops& ops, Stream& stream, const Decode& args) const override;

 private:
  struct Work;        // views of what is kept and of the workspace
  struct DecodeWork;  // of generation's workspace
  Work carve(std::byte* workspace, Keep keep, std::byte* kept) const;
  DecodeWork carve_decode(std::byte* workspace, int64_t tokens) const;
  View down_norm_backward(Ops& ops, Stream& stream, const Backward& args, const Work& work,
                          const TokenRange& range) const;
  void mlp_backward(Ops& ops, Stream& stream, const Backward& args, const Work& work, const TokenRange& range) const;

  BlockShape s_;
  AttentionHalf attention_;
  WeightOperand post_norm_, down_norm_;
  LinearOperands gate_up_, down_;
};

}  // namespace megatrain
