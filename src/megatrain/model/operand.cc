#include "megatrain/model/operand.h"

#include "megatrain/base/error.h"

namespace megatrain {

std::vector<const TensorSpec*> operand_tensors(const LayerLayout& layout, int operand) {
  std::vector<const TensorSpec*> tensors;
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.operand == operand) tensors.push_back(&tensor);
  }
  return tensors;
}

WeightOperand find_operand(const LayerLayout& layout, int operand) {
  const std::vector<const TensorSpec*> tensors = operand_tensors(layout, operand);
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

}  // namespace megatrain
