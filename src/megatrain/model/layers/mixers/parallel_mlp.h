// A gated MLP beside attention: both read the same input, and both outputs are added to the residual stream.
//
//   y = residual + down(gated(gate_up(x)))          x, y: (T, H)
//
// It is a mixer because the mixers of a block share their input, although its tokens do not see each other: mix() does
// nothing. So gate and up are made for a whole micro-batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/ops/elementwise.h"

namespace megatrain {

class ParallelMlp final : public Mixer {
 public:
  ParallelMlp(Activation activation, DType dtype, const LinearTensors& from);

  // Named as those of the attention beside it: only the second keeps what in() makes.
  std::vector<Level> keep_levels() const override;
  bool out_reads_in() const override { return true; }
  std::unique_ptr<Mixer::Work> carve(const Space& space) const override;
  void in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const override;
  void mix(const Binding& /*at*/, const Call& /*call*/) const override {}
  void out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
           const View& y) const override;
  void out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const override;
  void mix_backward(const Binding& /*at*/, const Call& /*call*/) const override {}
  void in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x, const View& grad_x,
                   bool add) const override;

  int64_t cache_bytes(int64_t /*sequences*/, int64_t /*context*/) const override { return 0; }
  std::unique_ptr<Mixer::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;

  Activation activation_;
  DType dtype_;
  Linear gate_up_, down_;
};

}  // namespace megatrain
