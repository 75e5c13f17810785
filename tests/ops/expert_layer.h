// A whole MoE layer made from its ops, in groups of experts, forward and backward, on any device. There is no
// synchronisation between the ops: the output of one determines how many rows the next works on.
#pragma once

#include "tests/ops/run_expert_cases.h"

namespace megatrain::testing {

struct ExpertLayer {
  DType dtype;
  int64_t tokens, hidden, size, experts, choices;
  Gate gate{};
  bool bias = false;
};

// `in`: x, logits, up, down (and their biases), grad_out. `out`: out and the gradients of everything in `in`. Experts
// are computed `group` at a time.
inline OpRun run(Harness& h, const ExpertLayer& c, int64_t group, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const int64_t pairs = c.tokens * c.choices, most = pairs + 1;
  r.in["x"] = h.random(c.tokens * c.hidden, c.dtype);
  r.in["logits"] = h.random(c.tokens * c.experts, DType::f32);
  for (int64_t t = 0; t < c.tokens; ++t) r.in["logits"][t * c.experts + 1] -= 100;  // an expert without rows
  r.in["up"] = h.random(c.experts * 2 * c.size * c.hidden, c.dtype, 0.5);
  r.in["down"] = h.random(c.experts * c.hidden * c.size, c.dtype, 0.5);
  r.in["up_bias"] = h.random(c.experts * 2 * c.size, c.dtype, c.bias ? 1.0 : 0.0);
  r.in["down_bias"] = h.random(c.experts * c.hidden, c.dtype, c.bias ? 1.0 : 0.0);
  r.in["grad_out"] = h.random(c.tokens * c.hidden, c.dtype);

  const Tensor x = h.filled(c.dtype, c.tokens, c.hidden, r.in["x"]);
  const Tensor logits = h.filled(DType::f32, c.tokens, c.experts, r.in["logits"]);
  const Tensor up = h.filled(c.dtype, c.experts, 2 * c.size * c.hidden, r.in["up"]);
  const Tensor down = h.filled(c.dtype, c.experts, c.hidden * c.size, r.in["down"]);
  const Tensor up_bias = h.filled(c.dtype, c.experts, 2 * c.size, r.in["up_bias"]);
  const Tensor down_bias = h.filled(c.dtype, c.experts, c.hidden, r.in["down_bias"]);
  const Tensor grad_out = h.filled(c.dtype, c.tokens, c.hidden, r.in["grad_out"]);
  const Tensor grad_up = h.poisoned(DType::f32, c.experts, 2 * c.size * c.hidden);
  const Tensor grad_down = h.poisoned(DType::f32, c.experts, c.hidden * c.size);
  const Tensor grad_up_bias = h.poisoned(DType::f32, c.experts, 2 * c.size);
  const Tensor grad_down_bias = h.poisoned(DType::f32, c.experts, c.hidden);

  const Buffer experts = h.device.allocate(static_cast<size_t>(pairs) * 4, "test"),
               begin = h.device.allocate(static_cast<size_t>(c.experts + 1) * 4, "test"),
               pair_of_row = h.device.allocate(static_cast<size_t>(pairs) * 4, "test"),
               row_of_pair = h.device.allocate(static_cast<size_t>(pairs) * 4, "test");
  const Tensor weights = h.poisoned(DType::f32, 1, pairs), grad_weights = h.poisoned(DType::f32, 1, pairs);
  const Tensor rows_x = h.poisoned(c.dtype, most, c.hidden), rows_y = h.poisoned(c.dtype, most, c.hidden);
  const Tensor gate_up = h.poisoned(c.dtype, most, 2 * c.size), act = h.poisoned(c.dtype, most, c.size);
  const Tensor sum = h.poisoned(DType::f32, c.tokens, c.hidden), out = h.poisoned(c.dtype, c.tokens, c.hidden);
  const Tensor grad_sum = h.poisoned(DType::f32, c.tokens, c.hidden);
  const Tensor grad_x = h.poisoned(c.dtype, c.tokens, c.hidden);
  const Tensor grad_logits = h.poisoned(c.dtype, c.tokens, c.experts);

  // The rows and weights of the group that begins with expert `first`.
  const auto rows = [&](int64_t first) {
    return ExpertRows{.begin = pointer<int32_t>(begin) + first,
                      .experts = std::min(group, c.experts - first),
                      .most = most,
                      .expected = pairs * group / c.experts};
  };
  const auto part = [&](const Tensor& all, int64_t first, int64_t width) {
    return weights_in(all.view.slice_rows(first, c.experts - first), all.view.cols / width, width);
  };
  const auto gather = [&](int64_t first, const Tensor& from, const Tensor& to) {
    h.ops.gather_rows(h.stream, {.x = from.view,
                                 .pair_of_row = pointer<int32_t>(pair_of_row),
                                 .choices = c.choices,
                                 .rows = rows(first),
                                 .out = to.view});
  };
  // gate_up for the group's rows of x
  const auto inner = [&](int64_t first) {
    gather(first, x, rows_x);
    h.ops.experts_forward(h.stream, {.rows = rows(first),
                                     .x = rows_x.view,
                                     .weight = part(up, first, c.hidden),
                                     .bias = c.bias ? part(up_bias, first, 2 * c.size) : ExpertWeights{},
                                     .out = gate_up.view});
  };
  // Groups add to an fp32 sum; the last one rounds it.
  const auto combine = [&](int64_t first, const Tensor& x_rows, const Tensor& into, const Tensor& last, bool backward) {
    const bool starts = backward ? first + group >= c.experts : first == 0;
    const bool ends = backward ? first == 0 : first + group >= c.experts;
    h.ops.combine_rows(h.stream, {.experts = pointer<int32_t>(experts),
                                  .row_of_pair = pointer<int32_t>(row_of_pair),
                                  .weights = backward ? nullptr : weights.view.as<float>(),
                                  .choices = c.choices,
                                  .first_expert = first,
                                  .rows = rows(first),
                                  .x = x_rows.view,
                                  .descending = backward,
                                  .from = starts ? View{} : into.view,
                                  .out = ends ? last.view : into.view});
  };

  h.ops.route(h.stream, {.logits = logits.view,
                         .choices = c.choices,
                         .experts = pointer<int32_t>(experts),
                         .weights = weights.view.as<float>()});
  h.ops.sort_by_expert(h.stream, {.experts = pointer<int32_t>(experts),
                                  .pairs = pairs,
                                  .count = c.experts,
                                  .begin = pointer<int32_t>(begin),
                                  .pair_of_row = pointer<int32_t>(pair_of_row),
                                  .row_of_pair = pointer<int32_t>(row_of_pair)});
  for (int64_t first = 0; first < c.experts; first += group) {
    inner(first);
    h.ops.experts_gated(h.stream, {.rows = rows(first), .gate_up = gate_up.view, .out = act.view, .gate = c.gate});
    h.ops.experts_forward(h.stream, {.rows = rows(first),
                                     .x = act.view,
                                     .weight = part(down, first, c.size),
                                     .bias = c.bias ? part(down_bias, first, c.hidden) : ExpertWeights{},
                                     .out = rows_y.view});
    combine(first, rows_y, sum, out, false);
  }
  for (int64_t first = (c.experts - 1) / group * group; first >= 0; first -= group) {
    inner(first);
    gather(first, grad_out, rows_y);
    h.ops.experts_backward_input(
        h.stream,
        {.rows = rows(first), .grad_out = rows_y.view, .weight = part(down, first, c.size), .grad_x = act.view});
    h.ops.experts_gated_backward(h.stream, {.rows = rows(first),
                                            .pair_of_row = pointer<int32_t>(pair_of_row),
                                            .weights = weights.view.as<float>(),
                                            .gate_up = gate_up.view,
                                            .grad_act = act.view,
                                            .grad_y = rows_y.view,
                                            .bias = c.bias ? part(down_bias, first, c.hidden) : ExpertWeights{},
                                            .gate = c.gate,
                                            .grad_weights = grad_weights.view.as<float>()});
    // The bias uses the weighted rows of dY. The matrix uses unweighted ones, since its other factor is weighted.
    if (c.bias) {
      h.ops.experts_backward_weight(h.stream, {.rows = rows(first),
                                               .grad_out = rows_y.view,
                                               .x = act.view,
                                               .grad_weight = {},
                                               .grad_bias = part(grad_down_bias, first, c.hidden)});
      gather(first, grad_out, rows_y);
    }
    h.ops.experts_backward_weight(
        h.stream,
        {.rows = rows(first), .grad_out = rows_y.view, .x = act.view, .grad_weight = part(grad_down, first, c.size)});
    h.ops.experts_backward_weight(h.stream,
                                  {.rows = rows(first),
                                   .grad_out = gate_up.view,
                                   .x = rows_x.view,
                                   .grad_weight = part(grad_up, first, c.hidden),
                                   .grad_bias = c.bias ? part(grad_up_bias, first, 2 * c.size) : ExpertWeights{}});
    h.ops.experts_backward_input(
        h.stream,
        {.rows = rows(first), .grad_out = gate_up.view, .weight = part(up, first, c.hidden), .grad_x = rows_x.view});
    combine(first, rows_x, grad_sum, grad_x, true);
  }
  h.ops.route_backward(h.stream, {.logits = logits.view,
                                  .choices = c.choices,
                                  .experts = pointer<int32_t>(experts),
                                  .grad_weights = grad_weights.view.as<float>(),
                                  .grad_logits = grad_logits.view});
  r.out["out"] = h.read(out);
  r.out["grad_x"] = h.read(grad_x);
  r.out["grad_logits"] = h.read(grad_logits);
  r.out["grad_up"] = h.read(grad_up);
  r.out["grad_down"] = h.read(grad_down);
  if (c.bias) {
    r.out["grad_up_bias"] = h.read(grad_up_bias);
    r.out["grad_down_bias"] = h.read(grad_down_bias);
  }
  return r;
}

// The bits do not depend on how many experts are computed at a time.
inline void check_groups_of_experts(Harness& h) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t choices : {1, 2, 4}) {
      const ExpertLayer layer{dtype, 70, 48, 40, 7, choices, {Activation::gelu_sigmoid, 2.003f, 1.0f}, choices == 2};
      const Values whole = run(h, layer, layer.experts, 3).out;
      for (const int64_t group : {1, 2, 3, 6})
        EXPECT_EQ(run(h, layer, group, 3).out, whole) << dtype_name(dtype) << " groups of " << group;
    }
  }
}

}  // namespace megatrain::testing
