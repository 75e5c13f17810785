// Mamba 2: a state space model whose state, a matrix for each head, decays and grows with every token.
//
//   z, xbc, dt = in(x)                             x: (T, H)   z: (T, V)   dt: (T, heads)
//   x', b, c = silu(conv(xbc))                     x': (T, V)   b, c: (T, S)    conv: causal, over few tokens
//   step, g = gates(dt)                            how much of a token is written, and what the state keeps
//   y = residual + out_scale out(norm(ssd(x', b, c, step, g) silu(z)))
//
// Some models multiply z, x', b, c and dt by numbers of their own, have the gate silu(z) behind the norm, or no norm.
//
// V = heads * head_dim, S = groups * state_dim. ops/ssd.h has the recurrence. State and convolution start anew with
// every document. The norm is over each of the groups of V.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/ops/ssd.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct Mamba2Operand {
  enum : int {
    in = BlockOperand::first_free,  // (2V + 2S + heads, H)
    in_bias,                        // (2V + 2S + heads)
    conv,                           // (V + 2S, taps)
    conv_bias,                      // (V + 2S)
    dt_bias,                        // (heads)
    a_log,                          // (heads)
    skip,                           // (heads)
    norm,                           // (V)
    out,                            // (H, V)
    out_bias,                       // (H)
  };
};

// Sizes of a model without Mamba are zero.
SsdShape ssd_shape(const Mamba2Config& config, int64_t tokens);

class Mamba2 final : public Mixer {
 public:
  struct Sizes {
    Mamba2Config config;
    float norm_eps;
    double out_scale;
    DType dtype;
  };
  Mamba2(const Sizes& sizes, const LinearTensors& from);

  // `outputs` keeps the recurrence's output, `projections` also what in() makes. The rest is cheap, and always
  // recomputed.
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

  // The states, (sequences * heads * state_dim, head_dim) fp32, then the convolution's last inputs,
  // (sequences * (taps - 1), V + 2S).
  int64_t cache_bytes(int64_t sequences, int64_t context) const override;
  bool cache_rewinds() const override { return false; }
  std::unique_ptr<Mixer::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;
  struct Parts {
    View z;    // (T, V)
    View xbc;  // (T, V + 2S)
    View dt;   // (T, heads)
  };
  Parts split(const View& projected) const;
  struct Inputs {
    View x, b, c;
  };
  Inputs inputs(const View& convolved) const;
  int64_t width() const { return c_.heads * c_.head_dim; }
  int64_t state_width() const { return c_.groups * c_.state_dim; }
  int64_t conv_width() const { return width() + 2 * state_width(); }
  int64_t state_bytes(int64_t sequences) const;
  StepLimits limits() const { return {static_cast<float>(c_.least_step), static_cast<float>(c_.most_step)}; }
  void convolve(const Binding& at, const Call& call) const;
  void gate(const Binding& at, const Work& work) const;
  void scale(const Binding& at, const View& projected) const;
  View normed(const Binding& at, const Work& work, const TokenRange& range) const;

  Mamba2Config c_;
  float eps_;
  DType dtype_;
  WeightOperand conv_, conv_bias_, dt_bias_, a_log_, skip_, norm_;
  Linear in_, out_;
};

}  // namespace megatrain
