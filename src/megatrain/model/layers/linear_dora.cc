// Linear with DoRA. The rows of a weight without an adapter are matmuls of their own, if any have one. What the factors
// multiply is computed again for the magnitudes' gradient, because it is not kept.
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/layers/linear_inner.h"

namespace megatrain {

namespace {

// Columns of a view that may be absent.
View columns(const View& view, int64_t begin, int64_t count) {
  return view.empty() ? View{} : view.slice_cols(begin, count);
}

}  // namespace

// The factors of all adapters, and one over each norm if it is wanted.
void Linear::find_factors(const Binding& at, const Inner& inner, bool inverse) const {
  const View weight = weight_.weight(at.weights);
  for (const Adapter& adapter : adapters_) {
    const int64_t rows = adapter.b.rows;
    at.ops.dora_factors(at.stream, {.weight = weight.slice_rows(adapter.begin, rows),
                                    .a = adapter.a.weight(at.adapter.weights),
                                    .b = adapter.b.weight(at.adapter.weights),
                                    .scale = adapter.scale,
                                    .magnitude = adapter.magnitude.weight(at.adapter.weights),
                                    .factors = inner.factors.slice_cols(adapter.inner, rows),
                                    .inv_norms = inverse ? inner.inv_norms.slice_cols(adapter.inner, rows) : View{}});
  }
}

void Linear::forward_dora(const Binding& at, const View& x, const View& residual, const View& out) const {
  const Inner inner = carve_inner(at, x);
  find_factors(at, inner, false);
  reduce(at, inner, x);
  const View weight = weight_.weight(at.weights), bias = bias_.weight(at.weights);
  for (const Run& run : runs_) {
    const bool plain = run.inner < 0;
    at.ops.linear_forward(
        at.stream, {.x = x,
                    .weight = weight.slice_rows(run.begin, run.rows),
                    .bias = plain ? columns(bias, run.begin, run.rows) : View{},
                    .residual = plain ? columns(residual, run.begin, run.rows) : View{},
                    .out = plain ? out.slice_cols(run.begin, run.rows) : inner.outs.slice_cols(run.inner, run.rows),
                    .scale = scale_});
  }
  for (const Adapter& adapter : adapters_) {
    const int64_t rows = adapter.b.rows;
    const View sum = inner.outs.slice_cols(adapter.inner, rows);
    add_adapter(at, inner, adapter, sum);
    at.ops.scale_columns(at.stream, {.x = sum,
                                     .factors = inner.factors.slice_cols(adapter.inner, rows),
                                     .bias = columns(bias, adapter.begin, rows),
                                     .residual = columns(residual, adapter.begin, rows),
                                     .out = out.slice_cols(adapter.begin, rows)});
  }
}

// Adds to `out`, which holds what the matmul gives without adapters.
void Linear::forward_dropping(const Binding& at, const View& x, const View& out) const {
  const Inner inner = carve_inner(at, x);
  find_factors(at, inner, false);
  const View weight = weight_.weight(at.weights);
  for (const Adapter& adapter : adapters_) {
    const int64_t rows = adapter.b.rows;
    const View input = dropped(at, adapter, inner, x), part = out.slice_cols(adapter.begin, rows);
    const View matmul = inner.outs.slice_cols(adapter.inner, rows);
    const auto add = [&](float offset) {
      at.ops.scale_columns(at.stream, {.x = matmul,
                                       .factors = inner.factors.slice_cols(adapter.inner, rows),
                                       .offset = offset,
                                       .bias = {},
                                       .residual = part,
                                       .out = part});
    };
    const auto multiply = [&](const View& by, const View& with, const View& to, float scale) {
      at.ops.linear_forward(at.stream,
                            {.x = by, .weight = with, .bias = {}, .residual = {}, .out = to, .scale = scale});
    };
    multiply(input, weight.slice_rows(adapter.begin, rows), matmul, scale_);
    add(-1);
    const View value = inner.values.slice_cols(adapter.first, adapter.a.rows);
    multiply(input, adapter.a.weight(at.adapter.weights), value, 1);
    multiply(value, adapter.b.weight(at.adapter.weights), matmul, adapter.scale * scale_);
    add(0);
  }
}

// The gradient of what the factors multiply: (factors + offset) grad_out, in the adapter's inner columns.
View Linear::scaled(const Binding& at, const Inner& inner, const Adapter& adapter, const View& grad_out,
                    float offset) const {
  const int64_t rows = adapter.b.rows;
  const View to = inner.outs.slice_cols(adapter.inner, rows);
  at.ops.scale_columns(at.stream, {.x = grad_out.slice_cols(adapter.begin, rows),
                                   .factors = inner.factors.slice_cols(adapter.inner, rows),
                                   .offset = offset,
                                   .times = {},
                                   .bias = {},
                                   .residual = {},
                                   .out = to});
  return to;
}

// The gradient of x A^T, from that of what the factors multiply.
void Linear::reduce_scaled(const Binding& at, const Inner& inner, const Adapter& adapter, const View& scaled) const {
  at.ops.linear_backward_input(at.stream, {.grad_out = scaled,
                                           .weight = adapter.b.weight(at.adapter.weights),
                                           .grad_x = inner.grads.slice_cols(adapter.first, adapter.a.rows),
                                           .scale = adapter.scale * scale_});
}

void Linear::backward_input_dora(const Binding& at, const View& grad_out, const View& grad_x, bool add) const {
  const Inner inner = carve_inner(at, grad_x);
  find_factors(at, inner, false);
  for (const Adapter& adapter : adapters_) reduce_scaled(at, inner, adapter, scaled(at, inner, adapter, grad_out, 0));
  const View weight = weight_.weight(at.weights);
  for (const Run& run : runs_) {
    at.ops.linear_backward_input(at.stream, {.grad_out = run.inner < 0 ? grad_out.slice_cols(run.begin, run.rows)
                                                                       : inner.outs.slice_cols(run.inner, run.rows),
                                             .weight = weight.slice_rows(run.begin, run.rows),
                                             .grad_x = grad_x,
                                             .accumulate = add || run.begin > 0,
                                             .scale = scale_});
  }
  at.ops.linear_backward_input(
      at.stream,
      {.grad_out = inner.grads, .weight = all_a_.weight(at.adapter.weights), .grad_x = grad_x, .accumulate = true});
}

// Adds to `grad_x`, which holds the gradient that the matmul gives without adapters.
void Linear::backward_input_dropping(const Binding& at, const View& grad_out, const View& grad_x) const {
  const Inner inner = carve_inner(at, grad_x);
  find_factors(at, inner, false);
  const View weight = weight_.weight(at.weights);
  for (const Adapter& adapter : adapters_) {
    at.ops.linear_backward_input(at.stream, {.grad_out = scaled(at, inner, adapter, grad_out, -1),
                                             .weight = weight.slice_rows(adapter.begin, adapter.b.rows),
                                             .grad_x = inner.dropped,
                                             .scale = scale_});
    reduce_scaled(at, inner, adapter, scaled(at, inner, adapter, grad_out, 0));
    at.ops.linear_backward_input(at.stream, {.grad_out = inner.grads.slice_cols(adapter.first, adapter.a.rows),
                                             .weight = adapter.a.weight(at.adapter.weights),
                                             .grad_x = inner.dropped,
                                             .accumulate = true});
    add_dropped_gradient(at, adapter, inner, grad_x);
  }
}

void Linear::adapter_gradients_dora(const Binding& at, const View& grad_out, const View& x) const {
  const Inner inner = carve_inner(at, x);
  find_factors(at, inner, true);
  const View weight = weight_.weight(at.weights);
  for (const Adapter& adapter : adapters_) {
    const int64_t rows = adapter.b.rows;
    const View input = dropped(at, adapter, inner, x), sum = inner.outs.slice_cols(adapter.inner, rows);
    const View value = inner.values.slice_cols(adapter.first, adapter.a.rows);
    const auto multiply = [&](const View& with, const View& to, float scale) {
      at.ops.linear_forward(at.stream,
                            {.x = input, .weight = with, .bias = {}, .residual = {}, .out = to, .scale = scale});
    };
    const auto gradient = [&](const View& of_out, const View& of, const View& to, float scale) {
      at.ops.linear_backward_weight(at.stream, {.grad_out = of_out,
                                                .x = of,
                                                .grad_weight = to,
                                                .grad_bias = {},
                                                .accumulate = at.accumulate,
                                                .scale = scale});
    };
    multiply(adapter.a.weight(at.adapter.weights), value, 1);
    multiply(weight.slice_rows(adapter.begin, rows), sum, scale_);
    add_adapter(at, inner, adapter, sum);
    at.ops.scale_columns(at.stream, {.x = sum,
                                     .factors = inner.inv_norms.slice_cols(adapter.inner, rows),
                                     .times = grad_out.slice_cols(adapter.begin, rows),
                                     .bias = {},
                                     .residual = {},
                                     .out = sum});
    at.ops.linear_backward_weight(at.stream, {.grad_out = sum,
                                              .x = {},
                                              .grad_weight = {},
                                              .grad_bias = adapter.magnitude.gradient(at.adapter.gradients),
                                              .accumulate = at.accumulate});
    const View grad = scaled(at, inner, adapter, grad_out, 0);
    reduce_scaled(at, inner, adapter, grad);
    gradient(grad, value, adapter.b.gradient(at.adapter.gradients), adapter.scale * scale_);
    gradient(inner.grads.slice_cols(adapter.first, adapter.a.rows), input, adapter.a.gradient(at.adapter.gradients), 1);
  }
}

}  // namespace megatrain
