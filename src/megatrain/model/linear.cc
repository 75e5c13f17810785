#include "megatrain/model/linear.h"

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

// Whether a gradient at `here` directly follows one of `elements` at `before`. Two frozen ones (negative) count as
// adjacent.
bool follows(int64_t before, int64_t elements, int64_t here) {
  return before < 0 ? here < 0 : here == before + elements;
}

}  // namespace

Linear::Linear(const LayerLayout& layout, int weight, int bias)
    : weight_(find_operand(layout, weight)), bias_(find_operand(layout, bias)) {
  const std::vector<const TensorSpec*> weights = operand_tensors(layout, weight),
                                       biases = operand_tensors(layout, bias);
  ensure(biases.empty() || biases.size() == weights.size(), "a bias is cut as its weight is");
  int64_t begin = 0;
  bool extends = false;  // the last part ends where this tensor begins
  for (size_t i = 0; i < weights.size(); ++i) {
    const LinearGradient part{.begin = begin,
                              .rows = weights[i]->rows,
                              .weight = weights[i]->state_offset,
                              .bias = biases.empty() ? -1 : biases[i]->state_offset};
    begin += part.rows;
    if (part.weight < 0 && part.bias < 0) {
      extends = false;
    } else if (extends && follows(gradients_.back().weight, gradients_.back().rows * weights[i]->cols, part.weight) &&
               follows(gradients_.back().bias, gradients_.back().rows, part.bias)) {
      gradients_.back().rows += part.rows;
    } else {
      gradients_.push_back(part);
      extends = true;
    }
  }
}

Linear::Linear(const WeightOperand& table)
    : weight_(table), gradients_{{.begin = 0, .rows = table.rows, .weight = table.state_offset}} {}

Linear Linear::times(double scale) const {
  Linear scaled = *this;
  scaled.scale_ *= static_cast<float>(scale);
  ensure(scaled.scale_ == 1 || bias_.offset < 0, "a scaled matmul has no bias");
  return scaled;
}

Linear Linear::rows_at_start(int64_t count) const {
  Linear rows;
  rows.weight_ = weight_;
  rows.scale_ = scale_;
  rows.weight_.offset = 0;
  rows.weight_.rows = count;
  return rows;
}

void Linear::forward(const Binding& at, const View& x, const View& residual, const View& out) const {
  at.ops.linear_forward(at.stream, {.x = x,
                                    .weight = weight_.weight(at.weights),
                                    .bias = bias_.weight(at.weights),
                                    .residual = residual,
                                    .out = out,
                                    .scale = scale_});
}

void Linear::backward_input(const Binding& at, const View& grad_out, const View& grad_x, bool add) const {
  at.ops.linear_backward_input(at.stream, {.grad_out = grad_out,
                                           .weight = weight_.weight(at.weights),
                                           .grad_x = grad_x,
                                           .accumulate = add,
                                           .scale = scale_});
}

void Linear::backward_weight(const Binding& at, const View& grad_out, const View& x) const {
  if (!at.gradients) return;
  const auto gradient = [&](int64_t offset, int64_t rows, int64_t cols) {
    return offset < 0 ? View{} : matrix(at.gradients + offset, DType::f32, rows, cols);
  };
  for (const LinearGradient& part : gradients_) {
    at.ops.linear_backward_weight(at.stream, {.grad_out = grad_out.slice_cols(part.begin, part.rows),
                                              .x = x,
                                              .grad_weight = gradient(part.weight, part.rows, x.cols),
                                              .grad_bias = gradient(part.bias, 1, part.rows),
                                              .accumulate = at.accumulate,
                                              .scale = scale_});
  }
}

}  // namespace megatrain
