// The gated delta net: linear attention whose state, a matrix for each value head, is corrected by every token.
//
//   qkv, z, b, a = in(x)                           x: (T, H)   z: (T, V)   b, a: (T, value_heads)
//   q, k, v = silu(conv(qkv))                      q, k: (T, K)   v: (T, V)    conv: causal, over few tokens
//   g, beta = gates(a, b)                          what the state keeps, and how much of a value is written
//   y = residual + out(norm(rule(q, k, v, g, beta)) silu(z))
//
// K = key_heads * key_dim, V = value_heads * value_dim. ops/delta_rule.h has the recurrence. State and convolution
// start anew with every document.
//
// With DeltaNetConfig::by_key_head, in(x) has the columns of q, k, v and z of one key head after the other, and then
// those of b and a. They are moved into the order above.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/mixer.h"
#include "megatrain/ops/delta_rule.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

struct DeltaOperand {
  enum : int {
    in = BlockOperand::first_free,  // (2K + 2V + 2 value_heads, H)
    conv,                           // (2K + V, taps)
    a_log,                          // (value_heads)
    dt_bias,                        // (value_heads)
    norm,                           // (value_dim)
    out,                            // (H, V)
  };
};

// Sizes of a model without delta nets are zero.
DeltaRuleShape delta_rule_shape(const DeltaNetConfig& config, int64_t tokens);

class DeltaNet final : public Mixer {
 public:
  DeltaNet(const DeltaNetConfig& config, float norm_eps, DType dtype, const LinearTensors& from);

  // `outputs` keeps the rule's output, `projections` also what in() makes. The rest is cheap, and always recomputed.
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

  // The states, (sequences * value_heads * key_dim, value_dim) fp32, then the convolution's last inputs,
  // (sequences * (taps - 1), 2K + V).
  int64_t cache_bytes(int64_t sequences, int64_t context) const override;
  bool cache_rewinds() const override { return false; }
  std::unique_ptr<Mixer::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;
  struct Parts {
    View qkv;   // (T, 2K + V)
    View z;     // (T, V)
    View b, a;  // (T, value_heads)
  };
  Parts split(const View& projected) const;
  struct Heads {
    View q, k, v;
  };
  Heads heads(const View& convolved) const;
  void project(const Binding& at, const View& x, const View& by_key_head, const View& projected) const;
  void sort_columns(const Binding& at, const View& by_key_head, const View& projected, bool backward) const;
  int64_t key_width() const { return c_.key_heads * c_.key_dim; }
  int64_t value_width() const { return c_.value_heads * c_.value_dim; }
  int64_t conv_width() const { return 2 * key_width() + value_width(); }
  int64_t state_bytes(int64_t sequences) const;
  void gate(const Binding& at, const Work& work, const View& projected) const;
  View normed(const Binding& at, const Work& work, const TokenRange& range) const;

  DeltaNetConfig c_;
  float eps_;
  DType dtype_;
  WeightOperand conv_, a_log_, dt_bias_, norm_;
  Linear in_, out_;
};

}  // namespace megatrain
