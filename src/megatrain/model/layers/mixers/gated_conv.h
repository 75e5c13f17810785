// A gated convolution: every token sees the few before it in its document.
//
//   b, c, v = in(x)                       x, b, c, v: (T, H)
//   y = residual + out(c * conv(b * v))   conv: causal, over few tokens, a filter for each channel
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct GatedConvOperand {
  enum : int {
    in = BlockOperand::first_free,  // (3H, H)
    in_bias,                        // (3H)
    conv,                           // (H, taps)
    conv_bias,                      // (H)
    out,                            // (H, H)
    out_bias,                       // (H)
  };
};

class GatedConv final : public Mixer {
 public:
  GatedConv(const GatedConvConfig& config, DType dtype, const LinearTensors& from);

  // `outputs` keeps the convolution's output, `projections` also what in() makes.
  std::vector<Level> keep_levels() const override;
  bool out_reads_in() const override { return true; }
  std::unique_ptr<Mixer::Work> carve(const Space& space) const override;
  void in(const Binding& at, const Call& call, const TokenRange& range, const View& x) const override;
  void mix(const Binding& at, const Call& call) const override;
  void out(const Binding& at, const Call& call, const TokenRange& range, const View& residual,
           const View& y) const override;
  void out_backward(const Binding& at, const Call& call, const TokenRange& range, const View& grad_y) const override;
  void mix_backward(const Binding& at, const Call& call) const override;
  void in_backward(const Binding& at, const Call& call, const TokenRange& range, const View& x, const View& grad_x,
                   bool add) const override;

  // The convolution's last inputs, (sequences * (taps - 1), H).
  int64_t cache_bytes(int64_t sequences, int64_t context) const override;
  bool cache_rewinds() const override { return false; }
  std::unique_ptr<Mixer::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;
  struct Parts {
    View b, c, v;  // (T, H)
  };
  int64_t width() const { return in_.in_width(); }
  Parts split(const View& projected) const;
  View gated(const Binding& at, const Work& work, const TokenRange& range) const;

  int64_t taps_;
  DType dtype_;
  WeightOperand conv_, conv_bias_;
  Linear in_, out_;
};

}  // namespace megatrain
