// An RMS norm with a weight of the record, or without one. It normalises groups of one size, that of the weight: whole
// rows, or single heads.
#pragma once

#include "megatrain/model/layers/binding.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/operand.h"

namespace megatrain {

// The parameters that all norms of a model share.
struct NormShape {
  float eps = 0;
  float offset = 0;      // added to the weight; 1 if files store it minus one
  bool centred = false;  // a layer norm without a bias
};
NormShape norm_shape(const ModelConfig& config);

class Norm {
 public:
  Norm() = default;  // absent
  Norm(const LayerLayout& layout, int operand, NormShape shape)
      : weight_(find_operand(layout, operand)), shape_(shape) {}

  static Norm weightless(int64_t width, NormShape shape);

  bool exists() const { return weight_.cols > 0; }
  bool trained() const { return weight_.state_offset >= 0; }
  int64_t width() const { return weight_.cols; }
  const WeightOperand& weight() const { return weight_; }
  // The same norm, with its weight at the start of its own slab.
  Norm at_start() const;

  // out = norm(x) + residual; `residual` may be empty. inv_rms: (rows * groups)
  void forward(const Binding& at, const View& x, const View& out, float* inv_rms, const View& residual = {}) const;

  struct Backward {
    View x;
    const float* inv_rms;
    View grad_out;
    View residual = {};  // added to grad_x; may be empty, or alias grad_x
    View grad_x;         // may alias grad_out
  };
  void backward(const Binding& at, const Backward& args) const;

 private:
  WeightOperand weight_;
  NormShape shape_;
};

}  // namespace megatrain
