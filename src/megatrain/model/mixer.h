// The seam for mixers: what lets the tokens of a sequence see each other. mixers/ has one file a kind.
//
// A block normalises its input and hands it to its mixers; each adds its output to the residual stream:
//
//   h = x + out(mix(in(norm(x))))       x, h: (T, H)
//
// What works on each token alone, in() and out(), runs over ranges of tokens; mix() sees all of a micro-batch. All
// weights are in the block's first record. In backward, parameters accumulate as Binding says; activations are
// assigned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/model/binding.h"
#include "megatrain/model/carve.h"
#include "megatrain/model/layer.h"
#include "megatrain/model/micro_batch.h"

namespace megatrain {

class Mixer {
 public:
  virtual ~Mixer() = default;

  // A level of what it keeps for backward. Level 0 keeps nothing; behind the last of these one more keeps everything.
  struct Level {
    std::string name;       // of the block's level
    std::string spared;     // what backward need not compute again, for people
    bool mixed = false;     // what mix() makes for out() and mix_backward() is kept
    bool whole = false;     // everything that its backward needs is
    bool may_wait = false;  // KeepLevel::may_wait
  };
  virtual std::vector<Level> keep_levels() const = 0;

  // Views of its buffers. `Space::keep` is a level of its own.
  struct Work {
    virtual ~Work() = default;
  };
  virtual std::unique_ptr<Work> carve(const Space& space) const = 0;

  // It has a record of its own, for tensors that stream in another type than the block's: fp32 ones of a bf16 model.
  virtual bool has_own_record() const { return false; }

  // As Phase has them; one mixer of a block at most.
  virtual int64_t shared_width() const { return 0; }
  virtual std::optional<SharedRead> reads_shared() const { return {}; }

  struct Call {
    const Work& work;
    Binding own;  // its own record, of the whole micro-batch; where it has none the block's
    const MicroBatchView& micro_batch;
    const float* tables;  // Model::make_tables()
    SharedViews shared;
  };
  // in() of every range, then mix(), then out() of every range. `x` is normalised. `residual` may be empty.
  virtual void in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const = 0;
  virtual void mix(const Binding& at, const Call& call) const = 0;
  virtual void out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                   const View& y) const = 0;

  // In the reverse order, after what was not kept has been made again by in() and, unless the level says so, mix().
  virtual void out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const = 0;
  virtual void mix_backward(const Binding& at, const Call& call) const = 0;
  // `add`: another mixer has written grad_x, which is added to.
  virtual void in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                           const View& grad_x, bool add) const = 0;

  // Generation: new tokens of several sequences, with what is remembered of those before them.
  virtual int64_t cache_bytes(int64_t sequences, int64_t context) const = 0;
  virtual bool cache_rewinds() const { return true; }  // Phase::cache_rewinds()
  virtual std::unique_ptr<Work> carve_decode(Carver& carver, int64_t tokens) const = 0;
  struct Decode {
    const Work& work;
    Binding own;
    View x;  // (T, H) normalised
    View residual;
    View y;  // may be the residual
    NewTokens tokens;
    SequenceCache cache;
    SequenceCache read;  // Phase::Decode::read
    const float* tables;
  };
  virtual void decode(const Binding& at, const Decode& args) const = 0;
};

}  // namespace megatrain
