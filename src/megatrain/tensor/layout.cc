#include "megatrain/tensor/layout.h"

#include "megatrain/base/math.h"

namespace megatrain {

LayerLayout make_layout(std::vector<TensorSpec> tensors) {
  LayerLayout layout;
  layout.tensors = std::move(tensors);
  for (TensorSpec& tensor : layout.tensors) {
    tensor.offset = tensor.fused ? layout.elements : round_up(layout.elements, kTensorAlign);
    layout.elements = tensor.offset + tensor.elements();
  }
  layout.elements = round_up(layout.elements, kTensorAlign);
  return layout;
}

}  // namespace megatrain
