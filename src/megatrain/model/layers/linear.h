// A matmul with a weight of the record. Every one in a block, its router and the head goes through here. A Linear knows
// the weight and its bias, which rows of them are trained, a factor for its output, and the adapters that are added to
// it. All multipliers of branches, heads and inputs are such factors.
//
//   out = scale (x weight^T + adapters(x)) + bias + residual       with a scale there is no bias
//   adapter(x) = s (dropout(x) A^T) B^T, added to the rows of the weight's tensor that it adapts
//
// DoRA also has a factor g for every adapted row (adapter.h), which multiplies the sum of the two matmuls. Rows without
// an adapter keep the first form.
//
//   out = scale g (x weight^T + adapter(x)) + bias + residual
//   out = scale (x weight^T + (g - 1) d weight^T + g adapter(x)) + bias + residual     with dropout; d = dropout(x)
//
//   x: (T, in)   out, residual: (T, out)   A: (r, in)   B: (rows of the tensor, r)   g: (rows of the tensor)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/model/layers/binding.h"
#include "megatrain/model/layers/operand.h"

namespace megatrain {

// The gradient of rows [begin, begin + rows) of a weight and of the same elements of its bias. Offsets are into the
// record's gradients; -1: frozen or absent.
struct LinearGradient {
  int64_t begin = 0;
  int64_t rows = 0;
  int64_t weight = -1;
  int64_t bias = -1;
};

// The records in which a Linear finds its tensors.
struct LinearTensors {
  LinearTensors(const LayerLayout& of_record, const LayerLayout* of_adapters = nullptr)
      : record(of_record), adapters(of_adapters) {}

  const LayerLayout& record;
  const LayerLayout* adapters;  // nullptr: the layer has none
};

// Bytes of AdapterBinding::scratch for calls of at most this many rows.
int64_t adapter_scratch_bytes(const LayerLayout& adapters, int64_t rows);

class Linear {
 public:
  Linear() = default;  // absent
  Linear(const LinearTensors& from, int weight, int bias = kNoOperand);
  // One trained tensor without a bias, anywhere in memory. It is frozen if Binding::gradients is null.
  explicit Linear(const WeightOperand& table);
  Linear times(double scale) const;

  int64_t in_width() const { return weight_.cols; }
  int64_t out_width() const { return weight_.rows; }
  const WeightOperand& weight() const { return weight_; }
  const WeightOperand& bias() const { return bias_; }
  // The fewest matmuls that compute all trained gradients: one if all of the weight's tensors are trained, none if all
  // are frozen.
  const std::vector<LinearGradient>& gradients() const { return gradients_; }
  // The adapter of one of the weight's tensors, or of several. The A halves of all of them lie back to back and form
  // one matrix.
  struct Adapter {
    int64_t begin;  // the first row of the weight that it adds to: its first column in `out`
    int64_t first;  // its first column in x A^T
    int64_t inner;  // with DoRA, its first column among those of all adapters
    WeightOperand a, b, magnitude;
    float scale;
    float dropout;
    uint64_t name_hash;
  };
  const std::vector<Adapter>& adapters() const { return adapters_; }
  const WeightOperand& all_a() const { return all_a_; }  // the A halves of all adapters: (R, in)

  // Only `count` rows, which start at the beginning of their own slab. Without adapters.
  Linear rows_at_start(int64_t count) const;

  void forward(const Binding& at, const View& x, const View& residual, const View& out) const;
  // `add`: adds to grad_x.
  void backward_input(const Binding& at, const View& grad_out, const View& grad_x, bool add = false) const;
  void backward_weight(const Binding& at, const View& grad_out, const View& x) const;

 private:
  struct Inner;  // what adapters compute between their halves
  struct Run {   // consecutive rows of the weight that all have adapters, or none
    int64_t begin, rows;
    int64_t inner;  // the first column among those of all adapters; -1: without adapters
  };
  void find_adapters(const LinearTensors& from, int weight);
  void find_runs();
  bool drops(const Binding& at) const { return at.adapter.random && adapters_.front().dropout > 0; }
  bool is_dora() const { return !adapters_.empty() && adapters_.front().magnitude.offset >= 0; }
  Inner carve_inner(const Binding& at, const View& x) const;
  View dropped(const Binding& at, const Adapter& adapter, const Inner& inner, const View& x) const;
  void add_dropped_gradient(const Binding& at, const Adapter& adapter, const Inner& inner, const View& grad_x) const;
  void reduce(const Binding& at, const Inner& inner, const View& x) const;
  void reduce_gradient(const Binding& at, const Inner& inner, const View& grad_out) const;
  void add_adapter(const Binding& at, const Inner& inner, const Adapter& adapter, const View& to) const;
  void weight_gradients(const Binding& at, const View& grad_out, const View& x) const;

  // With DoRA, in linear_dora.cc. "Inner columns" are those of all adapters, back to back.
  void find_factors(const Binding& at, const Inner& inner, bool inverse) const;
  View scaled(const Binding& at, const Inner& inner, const Adapter& adapter, const View& grad_out, float offset) const;
  void reduce_scaled(const Binding& at, const Inner& inner, const Adapter& adapter, const View& scaled) const;
  void forward_dora(const Binding& at, const View& x, const View& residual, const View& out) const;
  void forward_dropping(const Binding& at, const View& x, const View& out) const;
  void backward_input_dora(const Binding& at, const View& grad_out, const View& grad_x, bool add) const;
  void backward_input_dropping(const Binding& at, const View& grad_out, const View& grad_x) const;
  void adapter_gradients_dora(const Binding& at, const View& grad_out, const View& x) const;

  WeightOperand weight_, bias_;
  std::vector<LinearGradient> gradients_;
  std::vector<Adapter> adapters_;
  std::vector<Run> runs_;  // of all rows; only with DoRA
  WeightOperand all_a_;
  float scale_ = 1;
};

}  // namespace megatrain
