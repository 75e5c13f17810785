// How the cases of Mamba 2's ops are run, as in run_cases.h.
#pragma once

#include <cmath>
#include <numeric>

#include "tests/ops/harness.h"
#include "tests/ops/run_delta_cases.h"
#include "tests/ops/ssd_cases.h"

namespace megatrain::testing {

inline StepLimits limits_of(const SsdGatesCase& c) { return c.limits ? StepLimits{0.31f, 1.7f} : StepLimits{}; }

// "out" is the step, then g, and "grad_out" likewise.
inline OpRun run(Harness& h, const SsdGatesCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const int64_t size = c.tokens * c.heads;
  r.in["dt"] = h.random(size, c.dtype, c.amplitude);
  r.in["a_log"] = h.random(c.heads, c.weights_dtype, 0.5);
  r.in["dt_bias"] = h.random(c.heads, c.weights_dtype);
  r.in["grad_out"] = h.random(2 * size, DType::f32);
  if (c.accumulate) {
    r.in["before_a_log"] = h.random(c.heads, DType::f32);
    r.in["before_dt_bias"] = h.random(c.heads, DType::f32);
  }
  const Vector& grads = r.in["grad_out"];
  const Tensor dt = h.filled(c.dtype, c.tokens, c.heads, r.in["dt"], c.gap);
  const Tensor a_log = h.filled(c.weights_dtype, 1, c.heads, r.in["a_log"]),
               dt_bias = h.filled(c.weights_dtype, 1, c.heads, r.in["dt_bias"]);
  const Tensor step = h.poisoned(DType::f32, c.tokens, c.heads), g = h.poisoned(DType::f32, c.tokens, c.heads);
  const Tensor grad_step = h.filled(DType::f32, c.tokens, c.heads, Vector(grads.begin(), grads.begin() + size)),
               grad_g = h.filled(DType::f32, c.tokens, c.heads, Vector(grads.begin() + size, grads.end()));
  const Tensor apart = h.poisoned(c.dtype, c.tokens, c.heads, c.gap);
  const auto sum = [&](const char* before) {
    return c.accumulate ? h.filled(DType::f32, 1, c.heads, r.in[before]) : h.poisoned(DType::f32, 1, c.heads);
  };
  const Tensor grad_a_log = sum("before_a_log"), grad_dt_bias = sum("before_dt_bias");
  const Tensor& grad_dt = c.in_place ? dt : apart;
  h.launch(r.seconds["forward"], [&] {
    h.ops.ssd_gates_forward(h.stream, {.dt = dt.view,
                                       .a_log = a_log.view,
                                       .dt_bias = dt_bias.view,
                                       .limits = limits_of(c),
                                       .step = step.view,
                                       .g = g.view});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.ssd_gates_backward(h.stream, {.dt = dt.view,
                                        .a_log = a_log.view,
                                        .dt_bias = dt_bias.view,
                                        .limits = limits_of(c),
                                        .grad_step = grad_step.view,
                                        .grad_g = grad_g.view,
                                        .grad_dt = grad_dt.view,
                                        .grad_a_log = grad_a_log.view,
                                        .grad_dt_bias = grad_dt_bias.view,
                                        .accumulate = c.accumulate});
  });
  r.out["out"] = h.read(step);
  const Vector decays = h.read(g);
  r.out["out"].insert(r.out["out"].end(), decays.begin(), decays.end());
  r.out["grad_dt"] = h.read(grad_dt);
  r.out["grad_a_log"] = h.read(grad_a_log);
  r.out["grad_dt_bias"] = h.read(grad_dt_bias);
  return r;
}

inline SsdShape shape_of(const SsdCase& c) {
  return {.tokens = std::accumulate(c.documents.begin(), c.documents.end(), int64_t{0}),
          .heads = c.heads,
          .groups = c.groups,
          .head_dim = c.head_dim,
          .state_dim = c.state_dim};
}

// x, b and c of all tokens are columns of one tensor, as in the model, and so are their gradients.
struct SsdColumns {
  SsdColumns(const Tensor& all, const SsdCase& s)
      : x(all.view.slice_cols(0, s.heads * s.head_dim)),
        b(all.view.slice_cols(x.cols, s.groups * s.state_dim)),
        c(all.view.slice_cols(x.cols + b.cols, b.cols)) {}
  static int64_t width(const SsdCase& s) { return s.heads * s.head_dim + 2 * s.groups * s.state_dim; }
  View x, b, c;
};

// Random inputs and the output's gradient, except those in `given`.
inline Values ssd_inputs(Harness& h, const SsdCase& c, int64_t tokens, const Values& given) {
  Values in;
  const double narrow = 1 / std::sqrt(static_cast<double>(c.state_dim));
  in["x"] = h.random(tokens * c.heads * c.head_dim, c.dtype);
  in["b"] = h.random(tokens * c.groups * c.state_dim, c.dtype, narrow);
  in["c"] = h.random(tokens * c.groups * c.state_dim, c.dtype);
  in["step"] = h.random(tokens * c.heads, DType::f32);
  in["g"] = h.random(tokens * c.heads, DType::f32, static_cast<double>(c.decay));
  for (double& step : in["step"]) step = std::fabs(step);
  for (double& g : in["g"]) g = -std::fabs(g);
  in["skip"] = h.random(c.heads, c.dtype);
  in["grad_out"] = h.random(tokens * c.heads * c.head_dim, c.dtype);
  for (const auto& [name, values] : given) in.at(name) = values;
  return in;
}

inline OpRun run(Harness& h, const SsdCase& s, uint64_t seed, const Values& given = {}) {
  h.start(seed);
  OpRun r;
  const PackedDocuments documents(h, s.documents);
  const SsdShape shape = shape_of(s);
  const int64_t tokens = shape.tokens, width = s.heads * s.head_dim;
  r.in = ssd_inputs(h, s, tokens, given);
  if (s.accumulate) r.in["before_skip"] = h.random(s.heads, DType::f32);
  const Tensor all = h.poisoned(s.dtype, tokens, SsdColumns::width(s), s.gap);
  const Tensor grads = h.poisoned(s.dtype, tokens, SsdColumns::width(s), s.gap);
  const SsdColumns in(all, s), grad(grads, s);
  h.write(all, in.x, r.in["x"]);
  h.write(all, in.b, r.in["b"]);
  h.write(all, in.c, r.in["c"]);
  const Tensor step = h.filled(DType::f32, tokens, s.heads, r.in["step"]),
               g = h.filled(DType::f32, tokens, s.heads, r.in["g"]), skip = h.filled(s.dtype, 1, s.heads, r.in["skip"]),
               grad_out = h.filled(s.dtype, tokens, width, r.in["grad_out"], s.gap),
               out = h.poisoned(s.dtype, tokens, width, s.gap), grad_step = h.poisoned(DType::f32, tokens, s.heads),
               grad_g = h.poisoned(DType::f32, tokens, s.heads),
               grad_skip = s.accumulate ? h.filled(DType::f32, 1, s.heads, r.in["before_skip"])
                                        : h.poisoned(DType::f32, 1, s.heads);
  h.launch(r.seconds["forward"], [&] {
    h.ops.ssd_forward(h.stream, {.shape = shape,
                                 .documents = documents.view(),
                                 .x = in.x,
                                 .b = in.b,
                                 .c = in.c,
                                 .step = step.view,
                                 .g = g.view,
                                 .skip = skip.view,
                                 .out = out.view});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.ssd_backward(h.stream, {.shape = shape,
                                  .documents = documents.view(),
                                  .x = in.x,
                                  .b = in.b,
                                  .c = in.c,
                                  .step = step.view,
                                  .g = g.view,
                                  .skip = skip.view,
                                  .grad_out = grad_out.view,
                                  .grad_x = grad.x,
                                  .grad_b = grad.b,
                                  .grad_c = grad.c,
                                  .grad_step = grad_step.view,
                                  .grad_g = grad_g.view,
                                  .grad_skip = grad_skip.view,
                                  .accumulate = s.accumulate});
  });
  r.out["out"] = h.read(out);
  r.out["grad_x"] = h.read(grads, grad.x);
  r.out["grad_b"] = h.read(grads, grad.b);
  r.out["grad_c"] = h.read(grads, grad.c);
  r.out["grad_step"] = h.read(grad_step);
  r.out["grad_g"] = h.read(grad_g);
  r.out["grad_skip"] = h.read(grad_skip);
  return r;
}

}  // namespace megatrain::testing
