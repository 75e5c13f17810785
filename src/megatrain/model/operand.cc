#include "megatrain/model/operand.h"

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

std::vector<const TensorSpec*> tensors_of(const LayerLayout& layout, int operand) {
  std::vector<const TensorSpec*> tensors;
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.operand == operand) tensors.push_back(&tensor);
  }
  return tensors;
}

}  // namespace

WeightOperand find_operand(const LayerLayout& layout, int operand) {
  const std::vector<const TensorSpec*> tensors = tensors_of(layout, operand);
  if (tensors.empty()) return {};
  const TensorSpec& first = *tensors.front();
  WeightOperand found{.offset = first.offset,
                      .state_offset = tensors.size() == 1 ? first.state_offset : -1,
                      .rows = first.rows,
                      .cols = first.cols,
                      .dtype = first.dtype};
  for (size_t i = 1; i < tensors.size(); ++i) {
    ensure(tensors[i]->offset == found.offset + found.rows * found.cols, "the tensors of an operand lie back to back");
    (first.is_vector() ? found.cols : found.rows) += first.is_vector() ? tensors[i]->cols : tensors[i]->rows;
  }
  return found;
}

LinearOperands find_linear(const LayerLayout& layout, int weight, int bias) {
  LinearOperands found{.weight = find_operand(layout, weight), .bias = find_operand(layout, bias), .gradients = {}};
  const std::vector<const TensorSpec*> weights = tensors_of(layout, weight), biases = tensors_of(layout, bias);
  ensure(biases.empty() || biases.size() == weights.size(), "a bias is cut as its weight is");
  int64_t begin = 0;
  bool extends = false;  // the last part ends where this tensor begins
  for (size_t i = 0; i < weights.size(); ++i) {
    const LinearGradient part{.begin = begin,
                              .rows = weights[i]->rows,
                              .weight = weights[i]->state_offset,
                              .bias = biases.empty() ? -1 : biases[i]->state_offset};
    begin += part.rows;
    const auto follows = [](int64_t before, int64_t elements, int64_t here) {
      return before < 0 ? here < 0 : here == before + elements;
    };
    std::vector<LinearGradient>& parts = found.gradients;
    if (part.weight < 0 && part.bias < 0) {
      extends = false;
    } else if (extends && follows(parts.back().weight, parts.back().rows * weights[i]->cols, part.weight) &&
               follows(parts.back().bias, parts.back().rows, part.bias)) {
      parts.back().rows += part.rows;
    } else {
      parts.push_back(part);
      extends = true;
    }
  }
  return found;
}

void weight_gradients(Ops& ops, Stream& stream, float* grads, const LinearOperands& linear, const View& grad_out,
                      const View& x, bool accumulate) {
  const auto gradient = [&](int64_t offset, int64_t rows, int64_t cols) {
    return offset < 0 ? View{} : matrix(grads + offset, DType::f32, rows, cols);
  };
  for (const LinearGradient& part : linear.gradients) {
    ops.linear_backward_weight(stream, {.grad_out = grad_out.slice_cols(part.begin, part.rows),
                                        .x = x,
                                        .grad_weight = gradient(part.weight, part.rows, x.cols),
                                        .grad_bias = gradient(part.bias, 1, part.rows),
                                        .accumulate = accumulate});
  }
}

}  // namespace megatrain
