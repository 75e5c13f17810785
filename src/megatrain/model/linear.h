// A matmul with a weight of the record. Every one in a block, its router and the head goes through here. A Linear knows
// the weight and its bias, which rows of them are trained, and a factor for its output. All multipliers of branches,
// heads and inputs are such factors.
//
//   out = scale x weight^T + bias + residual      x: (T, in)  out, residual: (T, out); with a scale there is no bias
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/binding.h"
#include "megatrain/model/operand.h"

namespace megatrain {

// The gradient of rows [begin, begin + rows) of a weight and of the same elements of its bias. Offsets are into the
// record's gradients; -1: frozen or absent.
struct LinearGradient {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t weight = -1;
  int64_t bias = -1;
};

class Linear {
 public:
  Linear() = default;  // absent
  Linear(const LayerLayout& layout, int weight, int bias = kNoOperand);
  // One trained tensor without a bias, anywhere in memory. It is frozen if Binding::gradients is null.
  explicit Linear(const WeightOperand& table);
  Linear times(double scale) const;

  int64_t in_width() const { return weight_.cols; }
  int64_t out_width() const { return weight_.rows; }
  const WeightOperand& weight() const { return weight_; }
  const WeightOperand& bias() const { return bias_; }
  // The fewest matmuls that compute all trained gradients: one if all of the weight's tensors are trained, none if all
  // are frozen.
  const std::vector<LinearGradient>& gradients() const { return gradients_; }
  // Only `count` rows, which start at the beginning of their own slab.
  Linear rows_at_start(int64_t count) const;

  void forward(const Binding& at, const View& x, const View& residual, const View& out) const;
  // `add`: adds to grad_x.
  void backward_input(const Binding& at, const View& grad_out, const View& grad_x, bool add = false) const;
  void backward_weight(const Binding& at, const View& grad_out, const View& x) const;

 private:
  WeightOperand weight_, bias_;
  std::vector<LinearGradient> gradients_;
  float scale_ = 1;
};

}  // namespace megatrain
