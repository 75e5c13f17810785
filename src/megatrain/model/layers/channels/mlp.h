// The MLP: y = residual + out_scale down(activation(in_scale gate_up(x))), over ranges of tokens. Most activations have
// a gate (ops/elementwise.h); gate_up is `up` alone for one that has none.
//
// A shared expert may have a row gate: each token's output is multiplied by sigmoid(row_gate(x)), one number a token.
// That is done before `down`, whose rows are narrower. The record's layout decides whether there is one.
#pragma once

#include <cstdint>
#include <memory>

#include "megatrain/model/layers/channel.h"
#include "megatrain/model/layers/linear.h"

namespace megatrain {

class Mlp final : public Channel {
 public:
  Mlp(Activation activation, DType dtype, const LinearTensors& from, double out_scale = 1, double in_scale = 1);

  std::vector<std::string> keep_levels() const override { return {"products"}; }
  std::unique_ptr<Channel::Work> carve(const Space& space) const override;
  bool reads_input_again(int64_t keep) const override { return keep < matmuls; }
  void forward(const Binding& at, const Call& call, const View& x, const View& residual, const View& y,
               bool repeated) const override;
  void recompute(const Binding& at, const Call& call, const View& x) const override;
  void recompute_output(const Binding& at, const Call& call, const View& x, const View& residual,
                        const View& y) const override;
  void backward(const Binding& at, const Call& call, const View& x, const View& grad_y, const View& grad_x,
                bool output_made, bool add) const override;
  std::unique_ptr<Channel::Work> carve_decode(Carver& carver, int64_t tokens) const override;
  void decode(const Binding& at, const Decode& args) const override;

 private:
  struct Work;
  // `products` keeps gate, up and the row gate; `everything` also keeps the output of the activation function.
  enum Level : int64_t { matmuls = 1, everything };
  int64_t ff() const { return down_.in_width(); }
  bool has_row_gate() const { return row_gate_.out_width() > 0; }
  void project(const Binding& at, const View& x, const View& gate_up, const View& row_gate) const;

  Activation activation_;
  DType dtype_;
  Linear gate_up_, row_gate_, down_;
};

}  // namespace megatrain
