// A matmul with a weight of the record: every one of a block, of its router and of the head goes through here. The unit
// knows the weight with its bias, what of both is trained, and the number that multiplies its output. Multipliers of
// branches, heads and inputs are that number of some Linear.
//
//   out = scale x weight^T + bias + residual      x: (T, in)  out, residual: (T, out); a scaled one has no bias
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/binding.h"
#include "megatrain/model/operand.h"

namespace megatrain {

// The gradient of rows [begin, begin + rows) of a weight, and of its bias there. Offsets are into the record's
// gradients; -1: frozen, or there is none.
struct LinearGradient {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t weight = -1;
  int64_t bias = -1;
};

class Linear {
 public:
  Linear() = default;  // there is none
  Linear(const LayerLayout& layout, int weight, int bias = kNoOperand);
  // One trained tensor without a bias, wherever it lies. A null Binding::gradients says that it is frozen.
  explicit Linear(const WeightOperand& table);
  Linear times(double scale) const;

  int64_t in_width() const { return weight_.cols; }
  int64_t out_width() const { return weight_.rows; }
  const WeightOperand& weight() const { return weight_; }
  const WeightOperand& bias() const { return bias_; }
  // The fewest matmuls that make what is trained: one when all or none of the weight's tensors are frozen.
  const std::vector<LinearGradient>& gradients() const { return gradients_; }
  // So many rows alone, where they lie at the start of a slab of their own.
  Linear rows_at_start(int64_t count) const;

  void forward(const Binding& at, const View& x, const View& residual, const View& out) const;
  // `add`: grad_x is added to.
  void backward_input(const Binding& at, const View& grad_out, const View& grad_x, bool add = false) const;
  void backward_weight(const Binding& at, const View& grad_out, const View& x) const;

 private:
  WeightOperand weight_, bias_;
  std::vector<LinearGradient> gradients_;
  float scale_ = 1;
};

}  // namespace megatrain
