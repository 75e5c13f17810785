// The same matmul of all experts in a record, as one grouped matmul, with what the experts' adapters add. It is Linear
// for the rows of experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatrain/model/layers/binding.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/operand.h"
#include "megatrain/ops/experts.h"

namespace megatrain {

class ExpertLinear {
 public:
  // Requires that all experts of the record have the same tensors, at equal distances.
  ExpertLinear(const LinearTensors& from, int64_t experts, int weight, int bias);

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
  int64_t adapter_bytes(int64_t rows, DType dtype) const;  // of AdapterBinding::scratch
  ExpertWeights biases(std::byte* slab) const { return {bias_.weight(slab), stride_}; }

  void forward(const Binding& at, const ExpertRows& rows, const View& x, const View& out) const;
  void backward_input(const Binding& at, const ExpertRows& rows, const View& grad_out, const View& grad_x) const;
  enum class Parts : uint8_t { weight, bias, both };
  void backward_weight(const Binding& at, const ExpertRows& rows, const View& grad_out, const View& x,
                       Parts parts = Parts::both) const;

 private:
  using Adapter = Linear::Adapter;  // of the first expert
  struct Inner {
    View values;  // (most, R) x A^T
    View grads;   // (most, R) the gradient of s (x A^T)
  };
  Inner carve_inner(Carver& carver, int64_t rows, DType dtype) const;
  ExpertWeights adapter_weights(const Binding& at, const WeightOperand& half) const {
    return {half.weight(at.adapter.weights), adapter_stride_};
  }
  void reduce(const Binding& at, const ExpertRows& rows, const Inner& inner, const View& x) const;
  void reduce_gradient(const Binding& at, const ExpertRows& rows, const Inner& inner, const View& grad_out) const;
  void adapter_gradients(const Binding& at, const ExpertRows& rows, const View& grad_out, const View& x) const;

  WeightOperand weight_, bias_;  // of the first expert
  int64_t stride_ = 0;
  std::vector<Gradients> gradients_;
  std::vector<Adapter> adapters_;
  WeightOperand all_a_;         // their A halves: (R, in)
  int64_t adapter_stride_ = 0;  // elements from one expert's adapters to the next's, in weights and gradients
};

}  // namespace megatrain
