#include "megatrain/model/layers/channels/expert_linear.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/linear.h"

namespace megatrain {

namespace {

// One expert of a record as a layout, with its offsets in the record.
LayerLayout one_expert(const LayerLayout& record, int64_t experts, int64_t expert) {
  const int64_t tensors = std::ssize(record.tensors) / experts;
  const auto begin = record.tensors.begin() + expert * tensors;
  LayerLayout one;
  one.tensors.assign(begin, begin + tensors);
  return one;
}

// Whether this expert extends the run: the same parts are trained, at the run's stride.
bool goes_on(const ExpertLinear::Gradients& run, const LinearGradient& next, int64_t expert) {
  if (run.first + run.count != expert || run.begin != next.begin || run.rows != next.rows) return false;
  const auto fits = [&](int64_t first, int64_t offset) {
    if (first < 0 || offset < 0) return first == offset;
    return run.count == 1 || offset == first + run.count * run.stride;
  };
  return fits(run.weight, next.weight) && fits(run.bias, next.bias);
}

// The runs that include this expert: those in `open` that it extends, which are removed from `open`, and new ones.
std::vector<ExpertLinear::Gradients> runs_with(const Linear& one, int64_t expert,
                                               std::vector<ExpertLinear::Gradients>& open) {
  std::vector<ExpertLinear::Gradients> runs;
  for (const LinearGradient& part : one.gradients()) {
    if (part.weight < 0 && part.bias < 0) continue;
    const auto run = std::find_if(open.begin(), open.end(), [&](const auto& r) { return goes_on(r, part, expert); });
    if (run == open.end()) {
      runs.push_back({expert, 1, part.begin, part.rows, part.weight, part.bias, 0});
      continue;
    }
    ExpertLinear::Gradients longer = *run;
    if (longer.count == 1) longer.stride = part.weight >= 0 ? part.weight - run->weight : part.bias - run->bias;
    ++longer.count;
    runs.push_back(longer);
    open.erase(run);
  }
  return runs;
}

}  // namespace

ExpertLinear::ExpertLinear(const LinearTensors& from, int64_t experts, int weight, int bias) {
  std::vector<Gradients> open;  // runs that include the previous expert
  for (int64_t expert = 0; expert < experts; ++expert) {
    const LayerLayout record = one_expert(from.record, experts, expert);
    const LayerLayout adapters = from.adapters ? one_expert(*from.adapters, experts, expert) : LayerLayout();
    const Linear one({record, from.adapters ? &adapters : nullptr}, weight, bias);
    if (expert == 0) {
      weight_ = one.weight();
      bias_ = one.bias();
      adapters_ = one.adapters();
      all_a_ = one.all_a();
    } else {
      const int64_t apart = adapters_.empty() ? 0 : (one.all_a().offset - all_a_.offset) / expert;
      ensure(adapters_.empty() ||
                 (one.all_a().offset == all_a_.offset + expert * apart &&
                  one.all_a().state_offset == one.all_a().offset && (expert == 1 || apart == adapter_stride_)),
             "the adapters of a record's experts lie at equal distances");
      adapter_stride_ = apart;
      const int64_t stride = (one.weight().offset - weight_.offset) / expert;
      ensure(one.weight().offset == weight_.offset + expert * stride &&
                 (one.bias().offset < 0 || one.bias().offset == bias_.offset + expert * stride) &&
                 (expert == 1 || stride == stride_),
             "the experts of a record lie at equal distances");
      stride_ = stride;
    }
    std::vector<Gradients> now = runs_with(one, expert, open);
    gradients_.insert(gradients_.end(), open.begin(), open.end());
    open = std::move(now);
  }
  gradients_.insert(gradients_.end(), open.begin(), open.end());
}

ExpertLinear::Inner ExpertLinear::carve_inner(Carver& carver, int64_t rows, DType dtype) const {
  Inner inner;
  inner.values = carver.view(dtype, rows, all_a_.rows);
  inner.grads = carver.view(dtype, rows, all_a_.rows);
  return inner;
}

int64_t ExpertLinear::adapter_bytes(int64_t rows, DType dtype) const {
  Carver carver(nullptr);
  carve_inner(carver, rows, dtype);
  return carver.bytes();
}

// x A^T, one matmul for all adapters of an expert.
void ExpertLinear::reduce(const Binding& at, const ExpertRows& rows, const Inner& inner, const View& x) const {
  at.ops.experts_forward(
      at.stream, {.rows = rows, .x = x, .weight = adapter_weights(at, all_a_), .bias = {}, .out = inner.values});
}

// The gradient of x A^T, from that of the output.
void ExpertLinear::reduce_gradient(const Binding& at, const ExpertRows& rows, const Inner& inner,
                                   const View& grad_out) const {
  for (const Adapter& adapter : adapters_) {
    at.ops.experts_backward_input(at.stream, {.rows = rows,
                                              .grad_out = grad_out.slice_cols(adapter.begin, adapter.b.rows),
                                              .weight = adapter_weights(at, adapter.b),
                                              .grad_x = inner.grads.slice_cols(adapter.first, adapter.a.rows),
                                              .scale = adapter.scale});
  }
}

void ExpertLinear::forward(const Binding& at, const ExpertRows& rows, const View& x, const View& out) const {
  at.ops.experts_forward(
      at.stream,
      {.rows = rows, .x = x, .weight = {weight_.weight(at.weights), stride_}, .bias = biases(at.weights), .out = out});
  if (adapters_.empty()) return;
  Carver carver(at.adapter.scratch);
  const Inner inner = carve_inner(carver, x.rows, x.dtype);
  reduce(at, rows, inner, x);
  for (const Adapter& adapter : adapters_) {
    at.ops.experts_forward(at.stream, {.rows = rows,
                                       .x = inner.values.slice_cols(adapter.first, adapter.a.rows),
                                       .weight = adapter_weights(at, adapter.b),
                                       .bias = {},
                                       .out = out.slice_cols(adapter.begin, adapter.b.rows),
                                       .accumulate = true,
                                       .scale = adapter.scale});
  }
}

void ExpertLinear::backward_input(const Binding& at, const ExpertRows& rows, const View& grad_out,
                                  const View& grad_x) const {
  at.ops.experts_backward_input(
      at.stream,
      {.rows = rows, .grad_out = grad_out, .weight = {weight_.weight(at.weights), stride_}, .grad_x = grad_x});
  if (adapters_.empty()) return;
  Carver carver(at.adapter.scratch);
  const Inner inner = carve_inner(carver, grad_out.rows, grad_out.dtype);
  reduce_gradient(at, rows, inner, grad_out);
  at.ops.experts_backward_input(at.stream, {.rows = rows,
                                            .grad_out = inner.grads,
                                            .weight = adapter_weights(at, all_a_),
                                            .grad_x = grad_x,
                                            .accumulate = true});
}

void ExpertLinear::adapter_gradients(const Binding& at, const ExpertRows& rows, const View& grad_out,
                                     const View& x) const {
  if (adapters_.empty() || !at.adapter.gradients) return;
  Carver carver(at.adapter.scratch);
  const Inner inner = carve_inner(carver, x.rows, x.dtype);
  reduce(at, rows, inner, x);
  reduce_gradient(at, rows, inner, grad_out);
  const auto gradient = [&](const WeightOperand& half) {
    return ExpertWeights{half.gradient(at.adapter.gradients), adapter_stride_};
  };
  for (const Adapter& adapter : adapters_) {
    at.ops.experts_backward_weight(at.stream, {.rows = rows,
                                               .grad_out = grad_out.slice_cols(adapter.begin, adapter.b.rows),
                                               .x = inner.values.slice_cols(adapter.first, adapter.a.rows),
                                               .grad_weight = gradient(adapter.b),
                                               .grad_bias = {},
                                               .accumulate = at.accumulate,
                                               .scale = adapter.scale});
  }
  at.ops.experts_backward_weight(at.stream, {.rows = rows,
                                             .grad_out = inner.grads,
                                             .x = x,
                                             .grad_weight = gradient(all_a_),
                                             .grad_bias = {},
                                             .accumulate = at.accumulate});
}

void ExpertLinear::backward_weight(const Binding& at, const ExpertRows& rows, const View& grad_out, const View& x,
                                   Parts parts) const {
  if (parts != Parts::bias) adapter_gradients(at, rows, grad_out, x);
  for (const Gradients& run : gradients_) {
    if (!at.gradients) break;
    const auto gradient = [&](Parts part, int64_t offset, int64_t count, int64_t cols) {
      const bool wanted = offset >= 0 && (parts == part || parts == Parts::both);
      return wanted ? ExpertWeights{matrix(at.gradients + offset, DType::f32, count, cols), run.stride}
                    : ExpertWeights{};
    };
    const ExpertWeights weight = gradient(Parts::weight, run.weight, run.rows, weight_.cols);
    const ExpertWeights bias = gradient(Parts::bias, run.bias, 1, run.rows);
    if (weight.empty() && bias.empty()) continue;
    ExpertRows some = rows;
    some.origin = rows.begin;
    some.begin += run.first;
    some.experts = run.count;
    some.expected = rows.expected * run.count / rows.experts;
    at.ops.experts_backward_weight(at.stream, {.rows = some,
                                               .grad_out = grad_out.slice_cols(run.begin, run.rows),
                                               .x = x,
                                               .grad_weight = weight,
                                               .grad_bias = bias,
                                               .accumulate = at.accumulate});
  }
}

}  // namespace megatrain
