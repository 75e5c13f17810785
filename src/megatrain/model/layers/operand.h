// The operands of a layer's matmuls and norms as views of its slabs, found by their operand numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatrain/tensor/layout.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr int kNoOperand = -2;  // no tensor has this number

// A matrix or a row: one tensor, or several contiguous ones.
struct WeightOperand {
  int64_t offset = -1;        // in the record's weights; -1: absent
  int64_t state_offset = -1;  // in its gradients, if the operand is a single tensor; -1: frozen
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::bf16;

  // Empty if the operand is absent or its gradient is not wanted.
  View weight(std::byte* slab) const {
    return offset < 0 ? View{} : matrix(slab + offset * dtype_bytes(dtype), dtype, rows, cols);
  }
  View gradient(float* slab) const {
    return state_offset < 0 || !slab ? View{} : matrix(slab + state_offset, DType::f32, rows, cols);
  }
};

WeightOperand operand_of(const TensorSpec& tensor);
WeightOperand find_operand(const LayerLayout& layout, int operand);
std::vector<const TensorSpec*> operand_tensors(const LayerLayout& layout, int operand);  // in order

}  // namespace megatrain
