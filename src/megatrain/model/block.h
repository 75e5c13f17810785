// The dense block template: code and a layout, no weights. It is bound to a slab's address at call time.
//
//   h = x + o(attention(rope(qk_norm(qkv(norm(x))))))       x, h, y: (T, H)
//   y = h + down(swiglu(gate_up(norm(h))))
//
// Backward recomputes from the input x those inner activations that were not kept, by the calls that made them, then
// walks them in reverse by hand: how much was kept changes no bit. Parameters accumulate (+=) in backward except on the
// first micro-batch of a step; activations are assigned. Gradients of frozen tensors are not computed. The MLP, its
// norm included, runs in chunks of mlp_chunk tokens, forward and backward alike.
#pragma once

#include <cstdint>

#include "megatrain/model/block_weights.h"
#include "megatrain/model/config.h"
#include "megatrain/model/layers.h"
#include "megatrain/model/micro_batch.h"
#include "megatrain/model/rope_table.h"
#include "megatrain/ops/ops.h"
#include "megatrain/plan/keep.h"

namespace megatrain {

class BlockTemplate {
 public:
  BlockTemplate(const ModelConfig& config, DType dtype, int64_t tokens, int64_t mlp_chunk, RopeTable rope);

  // Scratch one call needs; forward and backward share it, and nothing in it outlives a call.
  int64_t workspace_bytes() const { return workspace_bytes_; }

  // What one micro-batch keeps from forward to backward.
  int64_t kept_bytes(Keep keep) const;

  struct Forward {
    int64_t block;       // 0-based: chooses the sliding window
    std::byte* weights;  // slab
    View x;              // (T, H)
    View y;              // (T, H)
    const MicroBatchView& micro_batch;
    std::byte* workspace;
    Keep keep = Keep::nothing;
    std::byte* kept = nullptr;  // kept_bytes(keep)
  };
  void forward(Ops& ops, Stream& stream, const Forward& args) const;

  struct Backward {
    int64_t block;
    std::byte* weights;   // slab
    View x;               // (T, H) the forward's input
    View grad;            // (T, H) in: gradient of y; out: gradient of x
    float* weight_grads;  // slab, fp32; unused when all are frozen
    const BlockGradients& gradients_at;
    bool accumulate;
    const MicroBatchView& micro_batch;
    std::byte* workspace;
    Keep keep = Keep::nothing;
    std::byte* kept = nullptr;  // as the forward left it; overwritten
  };
  void backward(Ops& ops, Stream& stream, const Backward& args) const;

 private:
  struct Work;  // views of what is kept and of the workspace
  Work carve(std::byte* workspace, Keep keep, std::byte* kept) const;
  void weight_gradients(Ops& ops, Stream& stream, float* grads, const std::vector<LinearGradient>& parts,
                        const View& grad_out, const View& x, bool accumulate) const;
  void input_norm(Ops& ops, Stream& stream, const BlockWeights& weights, const View& x, const Work& work) const;
  void attend(Ops& ops, Stream& stream, const BlockWeights& weights, const Forward& args, const Work& work) const;
  void post_norm(Ops& ops, Stream& stream, const BlockWeights& weights, const Work& work, int64_t begin,
                 int64_t count) const;
  void gate_up(Ops& ops, Stream& stream, const BlockWeights& weights, const Work& work, int64_t begin,
               int64_t count) const;

  ModelConfig config_;
  BlockOffsets at_;
  DType dtype_;
  int64_t tokens_, chunk_;
  RopeTable rope_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace megatrain
