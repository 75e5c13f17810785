// The seam for channels: the parts of a block that work on each token by itself. channels/ has one file per kind.
//
// A block normalises the residual stream and hands it to its channels. Each adds its output to the stream:
//
//   y = h + channel(norm(h))            h, y: (T, H)
//
// A channel works on ranges of tokens, or on a whole micro-batch if it must see all tokens. Its weights are in the
// block's first record. Experts have their own records after that one, then those of their adapters. They are the
// block's last channel. If they have several records, the phase runs in parts. A record of buffers is before them all.
// In backward, gradients of parameters accumulate as Binding says; those of activations are assigned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/model/layers/binding.h"
#include "megatrain/model/layers/carve.h"
#include "megatrain/model/layers/layer.h"
#include "megatrain/model/layers/micro_batch.h"

namespace megatrain {

class Channel {
 public:
  virtual ~Channel() = default;

  // The names of its keep levels, from level 1 on. Level 0 keeps nothing. The level after the last of these keeps
  // everything.
  virtual std::vector<std::string> keep_levels() const = 0;

  // Views of its buffers. `Space::keep` is one of this channel's levels.
  struct Work {
    virtual ~Work() = default;
  };
  virtual std::unique_ptr<Work> carve(const Space& space) const = 0;

  virtual bool takes_all_tokens() const { return false; }
  // Whether it has a record of buffers, which stream in fp32 whatever the block's dtype is. Its first part reads it.
  virtual bool has_buffers() const { return false; }
  virtual int64_t own_records() const { return 0; }
  virtual int64_t own_adapters() const { return 0; }  // records of their adapters: none, or one for each
  virtual int64_t router_bytes() const { return 0; }  // Phase::router_bytes()

  struct Call {
    const Work& work;
    TokenRange range;
    int64_t keep;  // one of this channel's keep levels
    const MicroBatchView& micro_batch;
    Binding own;  // the channel's own record that this part works on, with its adapters
    std::byte* router_counts = nullptr;
    RouterSlopes router = {};
    std::byte* buffers = nullptr;  // in the first part, and if it has any
    // Set by a channel around this one: the residual stream, of which x is the norm, and its gradient, to add to.
    View stream = {}, grad_stream = {};
  };
  // Whether a repeated forward() reads x, given that an earlier forward of the same micro-batch has filled the kept
  // activations.
  virtual bool reads_input_again(int64_t /*keep*/) const { return true; }
  // x is normalised. `residual` may be empty. `repeated`: an earlier forward has filled the kept activations.
  virtual void forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
                       bool repeated) const = 0;

  // Recomputes the activations that backward() needs and that were not kept.
  virtual void recompute(const Binding& at, const Call& call, const View& x) const = 0;
  // After recompute(): y as forward() computes it, for the backward of the post-norm.
  virtual void recompute_output(const Binding& at, const Call& call, const View& x, const View& residual,
                                const View& y) const = 0;
  // `output_made`: recompute_output() ran. `add`: another channel has written grad_x; add to it.
  virtual void backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                        bool output_made, bool add) const = 0;

  // The part that works on the channel's own record `own`. These parts run after forward(), and before backward().
  virtual void forward_own(const Call&, int64_t /*own*/, const View& /*x*/, const View& /*residual*/,
                           const View& /*y*/) const {}
  virtual void backward_own(const Call&, int64_t /*own*/, const View& /*x*/, const View& /*grad_y*/,
                            const View& /*grad_x*/) const {}

  // Generation.
  virtual std::unique_ptr<Work> carve_decode(Carver& carver, int64_t tokens) const = 0;
  virtual bool decode_chooses(int64_t /*tokens*/) const { return false; }  // Phase::decode_chooses() of its own records
  struct Decode {
    const Work& work;
    View x;            // (T, H) normalised
    View stream = {};  // Call::stream
    View residual;
    View y;                                // may alias `residual`
    std::byte* buffers;                    // slab of its record of buffers, if it has one
    std::span<std::byte* const> own;       // slabs of the channel's own records
    std::span<std::byte* const> adapters;  // and of their adapters
    // Fetches bytes of the record `own`; see Phase::Decode.
    std::function<void(int64_t own, const std::vector<Phase::ByteRange>& wanted)> fetch;
  };
  virtual void decode(const Binding& at, const Decode& args) const = 0;
};

}  // namespace megatrain
