#include "megatrain/model/layers/linear.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/base/stochastic.h"
#include "megatrain/model/layers/linear_inner.h"
#include "megatrain/model/trained/adapter.h"

namespace megatrain {

namespace {

// Whether a gradient at `here` directly follows one of `elements` at `before`. Two frozen ones (negative) count as
// adjacent.
bool follows(int64_t before, int64_t elements, int64_t here) {
  return before < 0 ? here < 0 : here == before + elements;
}

}  // namespace

Linear::Linear(const LinearTensors& from, int weight, int bias)
    : weight_(find_operand(from.record, weight)), bias_(find_operand(from.record, bias)) {
  const std::vector<const TensorSpec*> weights = operand_tensors(from.record, weight),
                                       biases = operand_tensors(from.record, bias);
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
  if (from.adapters) find_adapters(from, weight);
}

void Linear::find_adapters(const LinearTensors& from, int weight) {
  AdapterIndex index;
  index.add(*from.adapters);
  int64_t begin = 0, first = 0, inner = 0;
  for (const TensorSpec* tensor : operand_tensors(from.record, weight)) {
    const AdapterPair pair = index.of(*tensor);
    if (pair.a && pair.first_row == 0) {
      const WeightOperand a = operand_of(*pair.a), b = operand_of(*pair.b);
      adapters_.push_back({.begin = begin,
                           .first = first,
                           .inner = inner,
                           .a = a,
                           .b = b,
                           .magnitude = pair.magnitude ? operand_of(*pair.magnitude) : WeightOperand{},
                           .scale = pair.b->adapter.scale,
                           .dropout = pair.b->adapter.dropout,
                           .name_hash = pair.a->name_hash()});
      if (all_a_.rows == 0) all_a_ = a;
      ensure(a.offset == all_a_.offset + first * a.cols, "the A halves of a weight's adapters lie back to back");
      first += a.rows;
      inner += b.rows;
    }
    begin += tensor->rows;
  }
  all_a_.rows = first;
  if (is_dora()) find_runs();
}

void Linear::find_runs() {
  int64_t end = 0;
  const auto plain_up_to = [&](int64_t begin) {
    if (begin > end) runs_.push_back({.begin = end, .rows = begin - end, .inner = -1});
  };
  for (const Adapter& adapter : adapters_) {
    plain_up_to(adapter.begin);
    if (!runs_.empty() && runs_.back().inner >= 0)
      runs_.back().rows += adapter.b.rows;
    else
      runs_.push_back({.begin = adapter.begin, .rows = adapter.b.rows, .inner = adapter.inner});
    end = adapter.begin + adapter.b.rows;
  }
  plain_up_to(weight_.rows);
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

int64_t adapter_scratch_bytes(const LayerLayout& adapters, int64_t rows) {
  int64_t most = 0;
  LinearInner inner;
  int before = kNoOperand;
  for (const TensorSpec& tensor : adapters.tensors) {
    if (tensor.role == TensorRole::adapter_in) {
      if (tensor.operand != before) inner = {};
      before = tensor.operand;
      inner.in = tensor.cols;
      inner.ranks += tensor.rows;
      inner.drops = tensor.adapter.dropout > 0;
    }
    if (tensor.role == TensorRole::adapter_magnitude) inner.out += tensor.cols;
    Carver carver(nullptr);
    inner.carve(carver, tensor.dtype, rows);
    most = std::max(most, carver.bytes());
  }
  return most;
}

Linear::Inner Linear::carve_inner(const Binding& at, const View& x) const {
  Carver carver(at.adapter.scratch);
  Inner inner;
  inner.ranks = all_a_.rows;
  inner.in = all_a_.cols;
  inner.out = is_dora() ? adapters_.back().inner + adapters_.back().b.rows : 0;
  inner.drops = adapters_.front().dropout > 0;
  inner.carve(carver, x.dtype, x.rows);
  return inner;
}

namespace {

// The random numbers of one adapter's dropout in this call.
uint64_t dropout_key(const StepRandom& random, uint64_t name_hash) {
  uint64_t key = mix_key(random.seed, static_cast<uint64_t>(random.step));
  key = mix_key(key, static_cast<uint64_t>(random.micro_batch));
  return mix_key(key, name_hash);
}

}  // namespace

// The input that an adapter multiplies.
View Linear::dropped(const Binding& at, const Adapter& adapter, const Inner& inner, const View& x) const {
  if (!drops(at)) return x;
  at.ops.dropout(at.stream, {.x = x,
                             .out = inner.dropped,
                             .rate = adapter.dropout,
                             .key = dropout_key(*at.adapter.random, adapter.name_hash),
                             .first_row = at.adapter.first_token});
  return inner.dropped;
}

// grad_x += the gradient of what dropped() read, from that of its result in inner.dropped
void Linear::add_dropped_gradient(const Binding& at, const Adapter& adapter, const Inner& inner,
                                  const View& grad_x) const {
  at.ops.dropout(at.stream, {.x = inner.dropped,
                             .out = grad_x,
                             .rate = adapter.dropout,
                             .key = dropout_key(*at.adapter.random, adapter.name_hash),
                             .first_row = at.adapter.first_token,
                             .accumulate = true});
}

// x A^T: one matmul for all adapters, unless each drops other elements of x.
void Linear::reduce(const Binding& at, const Inner& inner, const View& x) const {
  if (!drops(at)) {
    at.ops.linear_forward(
        at.stream,
        {.x = x, .weight = all_a_.weight(at.adapter.weights), .bias = {}, .residual = {}, .out = inner.values});
    return;
  }
  for (const Adapter& adapter : adapters_) {
    at.ops.linear_forward(at.stream, {.x = dropped(at, adapter, inner, x),
                                      .weight = adapter.a.weight(at.adapter.weights),
                                      .bias = {},
                                      .residual = {},
                                      .out = inner.values.slice_cols(adapter.first, adapter.a.rows)});
  }
}

// The gradient of x A^T, from that of the output.
void Linear::reduce_gradient(const Binding& at, const Inner& inner, const View& grad_out) const {
  for (const Adapter& adapter : adapters_) {
    at.ops.linear_backward_input(at.stream, {.grad_out = grad_out.slice_cols(adapter.begin, adapter.b.rows),
                                             .weight = adapter.b.weight(at.adapter.weights),
                                             .grad_x = inner.grads.slice_cols(adapter.first, adapter.a.rows),
                                             .scale = adapter.scale * scale_});
  }
}

// to += s scale (x A^T) B^T, from x A^T
void Linear::add_adapter(const Binding& at, const Inner& inner, const Adapter& adapter, const View& to) const {
  at.ops.linear_forward(at.stream, {.x = inner.values.slice_cols(adapter.first, adapter.a.rows),
                                    .weight = adapter.b.weight(at.adapter.weights),
                                    .bias = {},
                                    .residual = to,
                                    .out = to,
                                    .scale = adapter.scale * scale_});
}

void Linear::forward(const Binding& at, const View& x, const View& residual, const View& out) const {
  if (is_dora() && !drops(at)) return forward_dora(at, x, residual, out);
  at.ops.linear_forward(at.stream, {.x = x,
                                    .weight = weight_.weight(at.weights),
                                    .bias = bias_.weight(at.weights),
                                    .residual = residual,
                                    .out = out,
                                    .scale = scale_});
  if (adapters_.empty()) return;
  if (is_dora()) return forward_dropping(at, x, out);
  const Inner inner = carve_inner(at, x);
  reduce(at, inner, x);
  for (const Adapter& adapter : adapters_)
    add_adapter(at, inner, adapter, out.slice_cols(adapter.begin, adapter.b.rows));
}

void Linear::backward_input(const Binding& at, const View& grad_out, const View& grad_x, bool add) const {
  if (is_dora() && !drops(at)) return backward_input_dora(at, grad_out, grad_x, add);
  at.ops.linear_backward_input(at.stream, {.grad_out = grad_out,
                                           .weight = weight_.weight(at.weights),
                                           .grad_x = grad_x,
                                           .accumulate = add,
                                           .scale = scale_});
  if (adapters_.empty()) return;
  if (is_dora()) return backward_input_dropping(at, grad_out, grad_x);
  const Inner inner = carve_inner(at, grad_x);
  reduce_gradient(at, inner, grad_out);
  if (!drops(at)) {
    at.ops.linear_backward_input(
        at.stream,
        {.grad_out = inner.grads, .weight = all_a_.weight(at.adapter.weights), .grad_x = grad_x, .accumulate = true});
    return;
  }
  for (const Adapter& adapter : adapters_) {
    at.ops.linear_backward_input(at.stream, {.grad_out = inner.grads.slice_cols(adapter.first, adapter.a.rows),
                                             .weight = adapter.a.weight(at.adapter.weights),
                                             .grad_x = inner.dropped});
    add_dropped_gradient(at, adapter, inner, grad_x);
  }
}

void Linear::weight_gradients(const Binding& at, const View& grad_out, const View& x) const {
  const auto gradient = [](float* slab, int64_t offset, int64_t rows, int64_t cols) {
    return offset < 0 ? View{} : matrix(slab + offset, DType::f32, rows, cols);
  };
  for (const LinearGradient& part : gradients_) {
    if (!at.gradients) break;
    at.ops.linear_backward_weight(at.stream, {.grad_out = grad_out.slice_cols(part.begin, part.rows),
                                              .x = x,
                                              .grad_weight = gradient(at.gradients, part.weight, part.rows, x.cols),
                                              .grad_bias = gradient(at.gradients, part.bias, 1, part.rows),
                                              .accumulate = at.accumulate,
                                              .scale = scale_});
  }
}

void Linear::backward_weight(const Binding& at, const View& grad_out, const View& x) const {
  weight_gradients(at, grad_out, x);
  if (adapters_.empty() || !at.adapter.gradients) return;
  if (is_dora()) return adapter_gradients_dora(at, grad_out, x);
  const Inner inner = carve_inner(at, x);
  reduce(at, inner, x);
  reduce_gradient(at, inner, grad_out);
  for (const Adapter& adapter : adapters_) {
    at.ops.linear_backward_weight(at.stream, {.grad_out = grad_out.slice_cols(adapter.begin, adapter.b.rows),
                                              .x = inner.values.slice_cols(adapter.first, adapter.a.rows),
                                              .grad_weight = adapter.b.gradient(at.adapter.gradients),
                                              .grad_bias = {},
                                              .accumulate = at.accumulate,
                                              .scale = adapter.scale * scale_});
    if (!drops(at)) continue;
    at.ops.linear_backward_weight(at.stream, {.grad_out = inner.grads.slice_cols(adapter.first, adapter.a.rows),
                                              .x = dropped(at, adapter, inner, x),
                                              .grad_weight = adapter.a.gradient(at.adapter.gradients),
                                              .grad_bias = {},
                                              .accumulate = at.accumulate});
  }
  if (drops(at)) return;
  at.ops.linear_backward_weight(at.stream, {.grad_out = inner.grads,
                                            .x = x,
                                            .grad_weight = all_a_.gradient(at.adapter.gradients),
                                            .grad_bias = {},
                                            .accumulate = at.accumulate});
}

}  // namespace megatrain
