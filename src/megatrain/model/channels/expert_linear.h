// The same matmul of all experts in a record, as one grouped matmul.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatrain/model/binding.h"
#include "megatrain/model/operand.h"
#include "megatrain/ops/experts.h"

namespace megatrain {

class ExpertLinear {
 public:
  // Requires that all experts of the record have the same tensors, at equal distances.
  ExpertLinear(const LayerLayout& record, int64_t experts, int weight, int bias);

  // The gradients of consecutive experts with the same trained tensors: some rows of the weight, or only the bias.
  struct Gradients {
    int64_t first, count;  // experts
    int64_t begin, rows;   // rows of the weight
    int64_t weight, bias;  // offsets in the record's gradients, for the first expert; -1: frozen or absent
    int64_t stride;        // elements from one expert to the next
  };
  const std::vector<Gradients>& gradients() const { return gradients_; }
  bool has_bias() const { return bias_.offset >= 0; }
  int64_t stride() const { return stride_; }  // elements of the record's weights from one expert to the next
  ExpertWeights biases(std::byte* slab) const { return {bias_.weight(slab), stride_}; }

  void forward(const Binding& at, const ExpertRows& rows, const View& x, const View& out) const;
  void backward_input(const Binding& at, const ExpertRows& rows, const View& grad_out, const View& grad_x) const;
  enum class Parts : uint8_t { weight, bias, both };
  void backward_weight(const Binding& at, const ExpertRows& rows, const View& grad_out, const View& x,
                       Parts parts = Parts::both) const;

 private:
  WeightOperand weight_, bias_;  // of the first expert
  int64_t stride_ = 0;
  std::vector<Gradients> gradients_;
};

}  // namespace megatrain
