#include "megatrain/model/layers/operand.h"

#include "megatrain/base/error.h"

namespace megatrain {

std::vector<const TensorSpec*> operand_tensors(const LayerLayout& layout, int operand) {
  std::vector<const TensorSpec*> tensors;
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.operand == operand) tensors.push_back(&tensor);
  }
  return tensors;
}

WeightOperand operand_of(const TensorSpec& tensor) {
  return {.offset = tensor.offset,
          .state_offset = tensor.state_offset,
          .rows = tensor.rows,
          .cols = tensor.cols,
          .dtype = tensor.dtype};
}

WeightOperand find_operand(const LayerLayout& layout, int operand) {
  const std::vector<const TensorSpec*> tensors = operand_tensors(layout, operand);
  if (tensors.empty()) return {};
  const TensorSpec& first = *tensors.front();
  WeightOperand found = operand_of(first);
  if (tensors.size() > 1) found.state_offset = -1;
  for (size_t i = 1; i < tensors.size(); ++i) {
    ensure(tensors[i]->offset == found.offset + found.rows * found.cols, "the tensors of an operand lie back to back");
    (first.is_vector() ? found.cols : found.rows) += first.is_vector() ? tensors[i]->cols : tensors[i]->rows;
  }
  return found;
}

}  // namespace megatrain
