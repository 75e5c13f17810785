// The seam for layers. A model is a list of layers. A layer has records, each with its own layout, and phases that run
// one after the other. A phase is code without weights: it is bound to its records' slabs at call time.
//
//   dense block    one record, one phase
//   expert block   one record for attention and router, and one or more for the experts; with several the phase runs in
//                  parts
//
// The phases of all families are blocks (block.h), made of mixers and channels.
//
// A sweep runs a phase over all its micro-batches before the next phase's records are needed. Likewise it runs one part
// of a phase over all of them before the next part. In backward, parameters accumulate (+=) except on the first
// micro-batch of a step; activations are assigned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatrain/model/layers/micro_batch.h"
#include "megatrain/ops/ops.h"
#include "megatrain/plan/keep.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// What a model's phases are built for. Every field changes bits or sizes; none says where memory is.
struct ModelShape {
  DType dtype = DType::bf16;       // of weights and activations
  int64_t tokens = 0;              // T of a micro-batch, at most; in generation, the maximum of new tokens in a pass
  int64_t mlp_chunk = 0;           // tokens per chunk of a block; attention itself is not chunked; 0: all
  int64_t head_chunk = 0;          // tokens per chunk of the head; 0: all
  int64_t positions = 0;           // positions covered by the position tables
  int64_t experts_per_record = 0;  // g of model_layouts(); 0: all experts of a layer are in one record
  StateFormat state;               // optimizer state of trained tensors
};

// T new tokens in device memory. Tokens of one sequence are adjacent and in order.
struct NewTokens {
  int64_t tokens = 0;                  // T
  const int32_t* sequences = nullptr;  // (T)
  const int32_t* positions = nullptr;  // (T)
  const int32_t* angles = nullptr;     // (T) row of the rotary tables: the position, or the row for long sequences
};

// What a phase caches of sequences in generation, Phase::cache_bytes() in size.
struct SequenceCache {
  std::byte* bytes = nullptr;
  int64_t sequences = 0;
  int64_t context = 0;  // capacity in tokens of each sequence
};

// Gradients of the router's auxiliary losses, passed on to RouteBackward. The defaults mean that there are none.
struct RouterSlopes {
  View probability;  // (E) fp32 or empty
  float squared_lse = 0;
};

// An activation that later phases read besides the output, for example when layers reuse another layer's keys and
// values. It is (T, width) in the activations' dtype and exists for all micro-batches of a sweep. In backward its
// readers add to its gradient, from the highest phase to the lowest. After that, the phase that made it runs its
// backward.
struct SharedViews {
  View made, grad_made;  // this phase's: written in forward; in backward, `grad_made` is complete
  View read, grad_read;  // of the phase it reads from; added to `grad_read`, unless that is empty
};
struct SharedRead {
  int64_t layer = 0;  // the layer that makes it
  int64_t phase = 0;  // the phase of that layer
  int64_t width = 0;
};

// Losses and accuracy, computed by the last phase of a model.
struct LossViews {
  float scale = 0;  // 1 / trained tokens of the step
  // (T) further factors of the tokens' losses; nullptr: 1. A loss over several sequences takes two passes. The first
  // computes only the losses, which are the negative log-probabilities; the second uses token scales derived from them.
  const float* token_scales = nullptr;
  float* loss = nullptr;       // (T)
  int32_t* correct = nullptr;  // (T)
};

class Phase {
 public:
  virtual ~Phase() = default;

  // The records it needs, as indices into the layer's records.
  virtual std::vector<int64_t> records() const = 0;
  // The record, if any, that is a lookup table. The phase reads only the rows of its tokens, in its first part
  // (Forward::rows, Decode::rows). The spans of slabs below do not include the table.
  virtual std::optional<int64_t> looks_up() const { return {}; }
  // True for the phase that computes the losses. It has no output. Its backward also runs its forward, so that logits
  // need not exist for all tokens at once; its forward computes only the losses.
  virtual bool ends() const { return false; }
  // The records that each part needs at once, in the order of all spans below. Forward runs the parts from first to
  // last. With several parts, backward is recompute() of the first, then backward() from the last part to the first.
  virtual std::vector<std::vector<int64_t>> parts() const { return {records()}; }
  virtual int64_t in_width() const = 0;   // width of x (T, in); 0: it reads no activation
  virtual int64_t out_width() const = 0;  // width of y (T, out)

  virtual int64_t shared_width() const { return 0; }  // of the activation that later phases read besides y; 0: none
  virtual std::optional<SharedRead> reads_shared() const { return {}; }

  // Scratch for one call, shared by forward and backward. Nothing in it outlives a call.
  virtual int64_t workspace_bytes() const = 0;
  // What may be kept of a micro-batch from forward to backward, from least to most.
  virtual std::vector<KeepLevel> keep_levels() const { return {{.name = "nothing", .recomputed = "all"}}; }
  // Bytes that one micro-batch hands from part to part, in forward or in backward; 0 with one part.
  virtual int64_t between_parts_bytes() const { return 0; }

  // Bytes of the router's counts of a step (RouterCounts in ops/experts.h); 0: it has no router.
  virtual int64_t router_bytes() const { return 0; }

  struct Forward {
    int64_t part = 0;
    std::span<std::byte* const> weights;  // slabs of the part's records
    View x;                               // (T, in), first part only
    View y;                               // (T, out), last part only; must not alias x
    MicroBatchView micro_batch;
    const float* tables;  // Model::make_tables()
    std::byte* workspace;
    std::byte* between_parts = nullptr;  // between_parts_bytes()
    Keep keep = Keep::nothing;           // an index into keep_levels()
    std::byte* kept = nullptr;           // KeepLevel::bytes of that level; nullptr: no backward follows
    SharedViews shared = {};             // first part only, as in backward and recompute; without gradients
    View rows = {};                      // (R, width) rows of the lookup table; MicroBatchView::row maps tokens to rows
    LossViews losses = {};               // if ends()
    bool repeated = false;               // an earlier forward filled `kept`; what is kept need not be recomputed
    std::byte* router_counts = nullptr;  // router_bytes(), added to; nullptr: do not count
  };
  virtual void forward(Ops& ops, Stream& stream, const Forward& args) const = 0;

  // Recomputes from x what was not kept, with the same calls as forward. So the keep level changes no bit.
  struct Backward {
    int64_t part = 0;
    std::span<std::byte* const> weights;
    View x;                                // (T, in) the forward's input, first part only
    View grad_y;                           // (T, out)
    View grad_x;                           // (T, in) out, first part only; may alias grad_y when the widths are equal
    std::span<float* const> weight_grads;  // fp32 slabs; unused for a record without trained tensors
    bool accumulate;
    MicroBatchView micro_batch;
    const float* tables;
    std::byte* workspace;
    std::byte* between_parts = nullptr;
    Keep keep = Keep::nothing;
    std::byte* kept = nullptr;  // as the forward left it; overwritten
    SharedViews shared = {};    // `made` may be recomputed
    View rows = {};             // as in Forward; only for a phase with an input
    RouterSlopes router;
    View row_grads = {};         // (R, width) fp32 gradients of the rows of the lookup table
    LossViews losses = {};       // if ends()
    bool grad_x_is_used = true;  // some layer below is trained
  };
  virtual void backward(Ops& ops, Stream& stream, const Backward& args) const = 0;
  // Recomputes into `between_parts` what the backward of several parts needs. Called with the first part's weights and
  // without gradients.
  virtual void recompute(Ops&, Stream&, const Backward&) const {}

  // Generation: a forward of new tokens of several sequences, which reads what it needs of earlier tokens from a cache.
  // It makes the same op calls as forward, on only the new tokens.
  virtual int64_t cache_bytes(int64_t /*sequences*/, int64_t /*context*/) const { return 0; }
  // Whether a sequence can continue from any earlier position. A recurrent state cannot: it continues only from the
  // last token, or restarts at position 0.
  virtual bool cache_rewinds() const { return true; }
  // False: generation calls other functions for this phase, as for the embedding and the head.
  virtual bool decodes() const { return true; }
  virtual int64_t decode_workspace_bytes(int64_t tokens) const = 0;
  // Whether decode of this many tokens reads only some bytes of a record. decode() finds out which, and fetches them.
  virtual bool decode_chooses(int64_t /*record*/, int64_t /*tokens*/) const { return false; }
  struct ByteRange {
    int64_t begin, bytes;
  };
  struct Decode {
    std::span<std::byte* const> weights;
    // Fetches these bytes of a record for which decode_chooses() is true; work enqueued afterwards may read them.
    // Empty: all bytes are already there.
    std::function<void(int64_t record, const std::vector<ByteRange>& wanted)> fetch;
    View x;  // (T, in)
    View y;  // (T, out); may alias x when the widths are equal
    NewTokens tokens;
    SequenceCache cache;      // the new tokens are appended, the earlier ones read
    SequenceCache read = {};  // of the phase whose shared activation it reads; includes the new tokens
    View rows = {};           // (T, width) rows of the lookup table, one for each new token
    const float* tables;
    std::byte* workspace;
  };
  virtual void decode(Ops& ops, Stream& stream, const Decode& args) const = 0;
};

struct Layer {
  std::string kind;  // Family::kind; layers of one kind that train the same tensors cost the same
  std::vector<LayerLayout> records;
  std::vector<std::unique_ptr<const Phase>> phases;
};

}  // namespace megatrain
