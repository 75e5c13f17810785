// The seam for channels: what works on each token by itself. channels/ has one file a kind.
//
// A block normalises the residual stream and hands it to its channels; each adds its output to it:
//
//   y = h + channel(norm(h))            h, y: (T, H)
//
// A channel works on ranges of tokens, or on all of a micro-batch at once where it must know them all. Its weights are
// in the block's first record; experts have records of their own behind it, and with several of these the phase runs
// in parts. In backward, parameters accumulate as Binding says; activations are assigned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/model/binding.h"
#include "megatrain/model/carve.h"
#include "megatrain/model/layer.h"
#include "megatrain/model/micro_batch.h"

namespace megatrain {

class Channel {
 public:
  virtual ~Channel() = default;

  // The names of its levels of what is kept for backward, from 1 on. Level 0 keeps nothing; behind the last of these
  // one more keeps everything.
  virtual std::vector<std::string> keep_levels() const = 0;

  // Views of its buffers. `Space::keep` is a level of its own.
  struct Work {
    virtual ~Work() = default;
  };
  virtual std::unique_ptr<Work> carve(const Space& space) const = 0;

  virtual bool takes_all_tokens() const { return false; }
  virtual int64_t own_records() const { return 0; }
  virtual int64_t router_bytes() const { return 0; }  // Phase::router_bytes()

  struct Call {
    const Work& work;
    TokenRange range;
    int64_t keep;  // a level of its own
    const MicroBatchView& micro_batch;
    Binding own;  // the record of its own that this part works on
    std::byte* router_counts = nullptr;
    RouterSlopes router = {};
  };
  // Whether forward() reads x, where an earlier forward of the same micro-batch left what is kept.
  virtual bool reads_input_again(int64_t /*keep*/) const { return true; }
  // x is normalised. `residual` may be empty. `again`: what is kept is there.
  virtual void forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
                       bool again) const = 0;

  // Makes again what backward() needs and was not kept.
  virtual void recompute(const Binding& at, const Call& call, const View& x) const = 0;
  // After recompute(): y as forward() makes it, for the norm behind it.
  virtual void recompute_output(const Binding& at, const Call& call, const View& residual, const View& y) const = 0;
  // `output_made`: recompute_output() ran. `add`: another channel has written grad_x, which is added to.
  virtual void backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                        bool output_made, bool add) const = 0;

  // The part that works on its record `own`: behind forward(), and in backward ahead of backward().
  virtual void forward_own(const Call&, int64_t /*own*/, const View& /*x*/, const View& /*residual*/,
                           const View& /*y*/) const {}
  virtual void backward_own(const Call&, int64_t /*own*/, const View& /*x*/, const View& /*grad_y*/,
                            const View& /*grad_x*/) const {}

  // Generation.
  virtual std::unique_ptr<Work> carve_decode(Carver& carver, int64_t tokens) const = 0;
  virtual bool decode_chooses(int64_t /*tokens*/) const { return false; }  // Phase::decode_chooses() of its own records
  struct Decode {
    const Work& work;
    View x;  // (T, H) normalised
    View residual;
    View y;                           // may be the residual
    std::span<std::byte* const> own;  // slabs of its own records
    // Asks for bytes of the record `own`; see Phase::Decode.
    std::function<void(int64_t own, const std::vector<Phase::ByteRange>& wanted)> fetch;
  };
  virtual void decode(const Binding& at, const Decode& args) const = 0;
};

}  // namespace megatrain
