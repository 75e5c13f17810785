#include "megatrain/model/channels/expert_linear.h"

#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/model/linear.h"

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

ExpertLinear::ExpertLinear(const LayerLayout& record, int64_t experts, int weight, int bias) {
  std::vector<Gradients> open;  // runs that include the previous expert
  for (int64_t expert = 0; expert < experts; ++expert) {
    const Linear one(one_expert(record, experts, expert), weight, bias);
    if (expert == 0) {
      weight_ = one.weight();
      bias_ = one.bias();
    } else {
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

void ExpertLinear::forward(const Binding& at, const ExpertRows& rows, const View& x, const View& out) const {
  at.ops.experts_forward(
      at.stream,
      {.rows = rows, .x = x, .weight = {weight_.weight(at.weights), stride_}, .bias = biases(at.weights), .out = out});
}

void ExpertLinear::backward_input(const Binding& at, const ExpertRows& rows, const View& grad_out,
                                  const View& grad_x) const {
  at.ops.experts_backward_input(
      at.stream,
      {.rows = rows, .grad_out = grad_out, .weight = {weight_.weight(at.weights), stride_}, .grad_x = grad_x});
}

void ExpertLinear::backward_weight(const Binding& at, const ExpertRows& rows, const View& grad_out, const View& x,
                                   Parts parts) const {
  for (const Gradients& run : gradients_) {
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
