// The seam for mixers: the parts of a block in which the tokens of a sequence see each other. mixers/ has one file per
// kind.
//
// A block normalises its input and hands it to its mixers. Each adds its output to the residual stream:
//
//   h = x + out(mix(in(norm(x))))       x, h: (T, H)
//
// in() and out() work on each token by itself and run over ranges of tokens; mix() sees a whole micro-batch. The
// weights are in the block's first record, unless the mixer has its own. In backward, gradients of parameters
// accumulate as Binding says; those of activations are assigned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/model/layers/binding.h"
#include "megatrain/model/layers/carve.h"
#include "megatrain/model/layers/layer.h"
#include "megatrain/model/layers/micro_batch.h"

namespace megatrain {

class Mixer {
 public:
  virtual ~Mixer() = default;

  // One of its keep levels, counted from 1. Level 0 keeps nothing. The level after the last of these keeps everything.
  struct Level {
    std::string name;       // name of the block's level
    std::string spared;     // what backward need not recompute, for messages
    bool mixed = false;     // keeps the outputs of mix() that out() and mix_backward() read
    bool whole = false;     // keeps everything that its backward needs
    bool may_wait = false;  // KeepLevel::may_wait
  };
  virtual std::vector<Level> keep_levels() const = 0;

  // Views of its buffers. `Space::keep` is one of this mixer's levels.
  struct Work {
    virtual ~Work() = default;
  };
  virtual std::unique_ptr<Work> carve(const Space& space) const = 0;

  // Whether out() also reads what in() made, such as a gate. A repeated forward then runs in() again, even if the
  // result of mix() was kept.
  virtual bool out_reads_in() const { return false; }

  // Whether it has its own record, for tensors that stream in another dtype than the block's, such as fp32 tensors of a
  // bf16 model.
  virtual bool has_own_record() const { return false; }

  // As in Phase. At most one mixer of a block shares, and at most one reads.
  virtual int64_t shared_width() const { return 0; }
  virtual std::optional<SharedRead> reads_shared() const { return {}; }

  struct Call {
    const Work& work;
    Binding own;  // its own record or, if it has none, the block's first; for the whole micro-batch
    const MicroBatchView& micro_batch;
    const float* tables;  // Model::make_tables()
    SharedViews shared;
  };
  // Called in this order: in() for every range, mix(), out() for every range. `x` is normalised. `residual` may be
  // empty.
  virtual void in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const = 0;
  virtual void mix(const Binding& at, const Call& call) const = 0;
  virtual void out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
                   const View& y) const = 0;

  // Called in reverse order. Before that, in() and mix() recompute the activations that were not kept; mix() is skipped
  // if the level keeps its result.
  virtual void out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const = 0;
  virtual void mix_backward(const Binding& at, const Call& call) const = 0;
  // `add`: another mixer has written grad_x; add to it.
  virtual void in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x,
                           const View& grad_x, bool add) const = 0;

  // Generation: new tokens of several sequences, with a cache of the earlier ones.
  virtual int64_t cache_bytes(int64_t sequences, int64_t context) const = 0;
  virtual bool cache_rewinds() const { return true; }  // Phase::cache_rewinds()
  virtual std::unique_ptr<Work> carve_decode(Carver& carver, int64_t tokens) const = 0;
  struct Decode {
    const Work& work;
    Binding own;
    View x;  // (T, H) normalised
    View residual;
    View y;  // may alias `residual`
    NewTokens tokens;
    SequenceCache cache;
    SequenceCache read;  // Phase::Decode::read
    const float* tables;
  };
  virtual void decode(const Binding& at, const Decode& args) const = 0;
};

}  // namespace megatrain
