// The seam for layers. A model is a list of layers; a layer has records, each with its own layout, and phases that run
// one after the other. A phase is code without weights: it is bound to its records' slabs at call time.
//
//   dense block    one record, one phase
//   expert block   a record of attention and router and one of experts, or more of these: then the phase runs in parts
//
// The phases of all families are blocks (block.h), made of mixers and channels.
//
// A sweep runs a phase over all its micro-batches before the next phase's records are needed, and a part of a phase
// before the next part's. In backward, parameters accumulate (+=) except on the first micro-batch of a step;
// activations are assigned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatrain/model/micro_batch.h"
#include "megatrain/ops/ops.h"
#include "megatrain/plan/keep.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// What a model's phases are built for: all of it changes bits or sizes, none of it is a place in memory.
struct ModelShape {
  DType dtype = DType::bf16;       // of weights and activations
  int64_t tokens = 0;              // T of a micro-batch; in generation the most new tokens of a pass
  int64_t mlp_chunk = 0;           // tokens of a piece of a block, attention itself apart; 0: all
  int64_t head_chunk = 0;          // tokens of a piece of the head; 0: all
  int64_t positions = 0;           // that the position tables cover
  int64_t experts_per_record = 0;  // g of model_layouts(); 0: all of a layer in one record
  StateFormat state;               // of what is trained
};

// T new tokens, of each sequence side by side and in order; device memory.
struct NewTokens {
  int64_t tokens = 0;                  // T
  const int32_t* sequences = nullptr;  // (T)
  const int32_t* positions = nullptr;  // (T)
  const int32_t* angles = nullptr;  // (T) row of the rotary tables: the position, or where long sequences have theirs
};

// What a phase remembers of sequences in generation: Phase::cache_bytes().
struct SequenceCache {
  std::byte* bytes = nullptr;
  int64_t sequences = 0;
  int64_t context = 0;  // tokens of each
};

// Gradients of the router's losses, by what RouteBackward has them by; as they are: there are no such losses.
struct RouterSlopes {
  View probability;  // (E) fp32 or empty
  float squared_lse = 0;
};

// What phases read of an earlier one beside its output, as layers do that use the keys and values of another:
// (T, width) of the activations' dtype, there for all micro-batches of a sweep. Its readers add to its gradient, from
// the highest to the lowest, before the backward of the phase that made it.
struct SharedViews {
  View made, grad_made;  // the phase's own: written in forward; in backward, with the whole gradient
  View read, grad_read;  // of the phase that it reads; the gradient is added to, or empty: not wanted
};
struct SharedRead {
  int64_t layer = 0;  // whose it is
  int64_t phase = 0;  // of that layer
  int64_t width = 0;
};

// What the phase that ends a model makes of its tokens.
struct LossViews {
  float scale = 0;  // 1 / trained tokens of the step
  // (T) a factor of each token's loss beside it; nullptr: 1. A loss over several sequences takes two passes: one of the
  // losses alone, which are minus the log-probabilities, then one with a scale a token that is made of them.
  const float* token_scales = nullptr;
  float* loss = nullptr;       // (T)
  int32_t* correct = nullptr;  // (T)
};

class Phase {
 public:
  virtual ~Phase() = default;

  // The records it needs, by their positions in the layer.
  virtual std::vector<int64_t> records() const = 0;
  // The one of them that is a table. A phase gets only the rows of its tokens (Forward::rows, Decode::rows), in its
  // first part; the spans of slabs below leave the table out.
  virtual std::optional<int64_t> looks_up() const { return {}; }
  // It has the losses, and no output. Its backward runs its forward too, so that what lies between need not exist for
  // all tokens at once; its forward makes the losses alone.
  virtual bool ends() const { return false; }
  // The records that each part needs at once; all spans below are in this order. Several parts run from the first to
  // the last in forward; backward is recompute() of the first, then from the last to the first.
  virtual std::vector<std::vector<int64_t>> parts() const { return {records()}; }
  virtual int64_t in_width() const = 0;   // of x (T, in); 0: it reads no activation
  virtual int64_t out_width() const = 0;  // of y (T, out)

  virtual int64_t shared_width() const { return 0; }  // of what later phases read beside y; 0: none does
  virtual std::optional<SharedRead> reads_shared() const { return {}; }

  // Scratch one call needs; forward and backward share it, and nothing in it outlives a call.
  virtual int64_t workspace_bytes() const = 0;
  // What may be kept of a micro-batch from forward to backward, from the least to the most.
  virtual std::vector<KeepLevel> keep_levels() const { return {{.name = "nothing", .recomputed = "all"}}; }
  // What one micro-batch hands from part to part, in forward or in backward; 0 with one part.
  virtual int64_t carried_bytes() const { return 0; }

  // Of what a step counts of its router (ops/experts.h, RouterCounts); 0: it has none.
  virtual int64_t router_bytes() const { return 0; }

  struct Forward {
    int64_t part = 0;
    std::span<std::byte* const> weights;  // slabs of the part's records
    View x;                               // (T, in) of the first part
    View y;                               // (T, out), not x; of the last part
    MicroBatchView micro_batch;
    const float* tables;  // Model::make_tables()
    std::byte* workspace;
    std::byte* carried = nullptr;        // carried_bytes()
    Keep keep = Keep::nothing;           // a place in keep_levels()
    std::byte* kept = nullptr;           // KeepLevel::bytes of it; nullptr: no backward follows
    SharedViews shared = {};             // of the first part, likewise in backward and recompute; no gradients
    View rows = {};                      // (R, width) of the table that it looks up; MicroBatchView::row says which
    LossViews losses = {};               // of the phase that ends
    bool again = false;                  // it has run before and left `kept`, so that this need not be made again
    std::byte* router_counts = nullptr;  // router_bytes(), added to; nullptr: nothing is counted
  };
  virtual void forward(Ops& ops, Stream& stream, const Forward& args) const = 0;

  // Recomputes from x what was not kept, by the calls that made it: how much was kept changes no bit.
  struct Backward {
    int64_t part = 0;
    std::span<std::byte* const> weights;
    View x;                                // (T, in) the forward's input; of the first part
    View grad_y;                           // (T, out)
    View grad_x;                           // (T, in) out; may be grad_y itself when the widths are equal; likewise
    std::span<float* const> weight_grads;  // slabs, fp32; that of a record without trained tensors is not used
    bool accumulate;
    MicroBatchView micro_batch;
    const float* tables;
    std::byte* workspace;
    std::byte* carried = nullptr;
    Keep keep = Keep::nothing;
    std::byte* kept = nullptr;  // as the forward left it; overwritten
    SharedViews shared = {};    // what is made may be made again
    View rows = {};             // as in Forward; of the first part of a phase that has an input
    RouterSlopes router;
    View row_grads = {};         // (R, width) fp32 of the rows that it looks up
    LossViews losses = {};       // of the phase that ends
    bool grad_x_is_used = true;  // something below is trained
  };
  virtual void backward(Ops& ops, Stream& stream, const Backward& args) const = 0;
  // Makes again what the backward of several parts needs, into `carried`; with the first part's weights, without
  // gradients.
  virtual void recompute(Ops&, Stream&, const Backward&) const {}

  // The forward for generation: new tokens of several sequences, with what it needs of the tokens before them in a
  // cache. The maths is forward's, op for op, in as many tokens as there are new ones.
  virtual int64_t cache_bytes(int64_t /*sequences*/, int64_t /*context*/) const { return 0; }
  // Whether a sequence can go on from any earlier position. A state of all tokens so far goes on from the last alone,
  // or from position 0, which begins anew.
  virtual bool cache_rewinds() const { return true; }
  // False: generation has other calls for it, as for what is looked up and for logits.
  virtual bool decodes() const { return true; }
  virtual int64_t decode_workspace_bytes(int64_t tokens) const = 0;
  // Whether so few tokens read only some bytes of a record, which decode learns and then asks for.
  virtual bool decode_chooses(int64_t /*record*/, int64_t /*tokens*/) const { return false; }
  struct ByteRange {
    int64_t begin, bytes;
  };
  struct Decode {
    std::span<std::byte* const> weights;
    // Work enqueued afterwards may read these bytes of a record that decode_chooses. Empty: all are there.
    std::function<void(int64_t record, const std::vector<ByteRange>& wanted)> fetch;
    View x;  // (T, in)
    View y;  // (T, out); may be x itself when the widths are equal
    NewTokens tokens;
    SequenceCache cache;      // the new tokens are added, those before them read
    SequenceCache read = {};  // of the phase whose shared activation it reads, the new tokens in it
    View rows = {};           // (T, width) of the table that it looks up, one for each new token
    const float* tables;
    std::byte* workspace;
  };
  virtual void decode(Ops& ops, Stream& stream, const Decode& args) const = 0;
};

struct Layer {
  std::string kind;  // Family::kind: layers of one kind with the same tensors trained cost the same
  std::vector<LayerLayout> records;
  std::vector<std::unique_ptr<const Phase>> phases;
};

}  // namespace megatrain
