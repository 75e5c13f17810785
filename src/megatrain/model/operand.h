// The operands of a layer's maths as views of its slabs, found by the numbers its tensors carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatrain/ops/ops.h"
#include "megatrain/tensor/layout.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

// A matrix or a row: one tensor, or several that lie back to back.
struct WeightOperand {
  int64_t offset = -1;        // in the record's weights; -1: the layer has none
  int64_t state_offset = -1;  // in its gradients, of an operand that is one tensor; -1: frozen
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::bf16;

  // Empty: there is none, or its gradient is not wanted.
  View weight(std::byte* slab) const {
    return offset < 0 ? View{} : matrix(slab + offset * dtype_bytes(dtype), dtype, rows, cols);
  }
  View gradient(float* slab) const {
    return state_offset < 0 ? View{} : matrix(slab + state_offset, DType::f32, rows, cols);
  }
};

// Of rows [begin, begin + rows) of one product's weight; -1: frozen, or there is none.
struct LinearGradient {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t weight = -1;
  int64_t bias = -1;
};

struct LinearOperands {
  WeightOperand weight, bias;
  // The fewest calls that make what is trained: one when all or none of the weight's tensors are frozen.
  std::vector<LinearGradient> gradients;
};

WeightOperand find_operand(const LayerLayout& layout, int operand);
LinearOperands find_linear(const LayerLayout& layout, int weight, int bias);

// The gradients of a product's weight and bias: what is trained of them.
void weight_gradients(Ops& ops, Stream& stream, float* grads, const LinearOperands& linear, const View& grad_out,
                      const View& x, bool accumulate);

}  // namespace megatrain
