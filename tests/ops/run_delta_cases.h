// How the cases of a gated delta net's ops are run, as in run_cases.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/ops/delta_cases.h"
#include "tests/ops/harness.h"

namespace megatrain::testing {

// Documents on the device. An object must outlive the calls that use them.
class PackedDocuments {
 public:
  PackedDocuments(Harness& h, const std::vector<int32_t>& tokens) {
    for (int32_t size : tokens) begin_.push_back(begin_.back() + size);
    device_ = h.upload(begin_);
    const auto [shortest, longest] = std::minmax_element(tokens.begin(), tokens.end());
    view_ = {.begin = pointer<int32_t>(device_),
             .host_begin = begin_.data(),
             .count = static_cast<int64_t>(tokens.size()),
             .longest = *longest,
             .uniform = *shortest == *longest};
  }
  const Documents& view() const { return view_; }
  int64_t tokens() const { return begin_.back(); }

 private:
  std::vector<int32_t> begin_{0};
  Buffer device_;
  Documents view_{};
};

inline OpRun run(Harness& h, const ShortConvCase& c, uint64_t seed, const Values& given = {}) {
  h.start(seed);
  OpRun r;
  const PackedDocuments documents(h, c.documents);
  const int64_t tokens = documents.tokens();
  r.in["x"] = h.random(tokens * c.channels, c.dtype);
  r.in["weight"] = h.random(c.channels * c.taps, c.dtype, 0.6);
  r.in["grad_out"] = h.random(tokens * c.channels, c.dtype);
  if (c.accumulate) r.in["before_weight"] = h.random(c.channels * c.taps, DType::f32);
  if (c.bias) r.in["bias"] = h.random(c.channels, c.dtype);
  if (c.bias && c.accumulate) r.in["before_bias"] = h.random(c.channels, DType::f32);
  for (const auto& [name, values] : given) r.in.at(name) = values;
  const Tensor x = h.filled(c.dtype, tokens, c.channels, r.in["x"], c.gap);
  const Tensor weight = h.filled(c.dtype, c.channels, c.taps, r.in["weight"]);
  const Tensor grad_out = h.filled(c.dtype, tokens, c.channels, r.in["grad_out"], c.gap);
  const Tensor out = h.poisoned(c.dtype, tokens, c.channels, c.gap);
  const Tensor grad_x = h.poisoned(c.dtype, tokens, c.channels, c.gap);
  const Tensor grad_weight = c.accumulate ? h.filled(DType::f32, c.channels, c.taps, r.in["before_weight"])
                                          : h.poisoned(DType::f32, c.channels, c.taps);
  const Tensor bias = c.bias ? h.filled(c.dtype, 1, c.channels, r.in["bias"]) : Tensor{};
  const Tensor grad_bias = !c.bias        ? Tensor{}
                           : c.accumulate ? h.filled(DType::f32, 1, c.channels, r.in["before_bias"])
                                          : h.poisoned(DType::f32, 1, c.channels);
  h.launch(r.seconds["forward"], [&] {
    h.ops.short_conv_forward(h.stream, {.documents = documents.view(),
                                        .x = x.view,
                                        .weight = weight.view,
                                        .bias = bias.view,
                                        .out = out.view,
                                        .silu = !c.plain});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.short_conv_backward(h.stream, {.documents = documents.view(),
                                         .x = x.view,
                                         .weight = weight.view,
                                         .bias = bias.view,
                                         .grad_out = grad_out.view,
                                         .grad_x = grad_x.view,
                                         .grad_weight = c.frozen ? View{} : grad_weight.view,
                                         .grad_bias = c.frozen ? View{} : grad_bias.view,
                                         .accumulate = c.accumulate,
                                         .silu = !c.plain});
  });
  r.out["out"] = h.read(out);
  r.out["grad_x"] = h.read(grad_x);
  if (!c.frozen) r.out["grad_weight"] = h.read(grad_weight);
  if (c.bias && !c.frozen) r.out["grad_bias"] = h.read(grad_bias);
  return r;
}

// "out" is g, then beta, and "grad_out" likewise.
inline OpRun run(Harness& h, const DeltaGatesCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const int64_t size = c.tokens * c.heads;
  r.in["a"] = h.random(size, c.dtype, c.amplitude);
  r.in["b"] = h.random(size, c.dtype, c.amplitude);
  r.in["a_log"] = h.random(c.heads, c.weights_dtype, 0.5);
  r.in["dt_bias"] = h.random(c.heads, c.weights_dtype);
  r.in["grad_out"] = h.random(2 * size, DType::f32);
  if (c.accumulate) {
    r.in["before_a_log"] = h.random(c.heads, DType::f32);
    r.in["before_dt_bias"] = h.random(c.heads, DType::f32);
  }
  const Vector& grads = r.in["grad_out"];
  const Tensor a = h.filled(c.dtype, c.tokens, c.heads, r.in["a"], c.gap),
               b = h.filled(c.dtype, c.tokens, c.heads, r.in["b"], c.gap);
  const Tensor a_log = h.filled(c.weights_dtype, 1, c.heads, r.in["a_log"]),
               dt_bias = h.filled(c.weights_dtype, 1, c.heads, r.in["dt_bias"]);
  const Tensor g = h.poisoned(DType::f32, c.tokens, c.heads), beta = h.poisoned(DType::f32, c.tokens, c.heads);
  const Tensor grad_g = h.filled(DType::f32, c.tokens, c.heads, Vector(grads.begin(), grads.begin() + size)),
               grad_beta = h.filled(DType::f32, c.tokens, c.heads, Vector(grads.begin() + size, grads.end()));
  const Tensor apart_a = h.poisoned(c.dtype, c.tokens, c.heads, c.gap),
               apart_b = h.poisoned(c.dtype, c.tokens, c.heads, c.gap);
  const auto sum = [&](const char* before) {
    return c.accumulate ? h.filled(DType::f32, 1, c.heads, r.in[before]) : h.poisoned(DType::f32, 1, c.heads);
  };
  const Tensor grad_a_log = sum("before_a_log"), grad_dt_bias = sum("before_dt_bias");
  const Tensor &grad_a = c.in_place ? a : apart_a, &grad_b = c.in_place ? b : apart_b;
  h.launch(r.seconds["forward"], [&] {
    h.ops.delta_gates_forward(
        h.stream,
        {.a = a.view, .b = b.view, .a_log = a_log.view, .dt_bias = dt_bias.view, .g = g.view, .beta = beta.view});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.delta_gates_backward(h.stream, {.a = a.view,
                                          .b = b.view,
                                          .a_log = a_log.view,
                                          .dt_bias = dt_bias.view,
                                          .grad_g = grad_g.view,
                                          .grad_beta = grad_beta.view,
                                          .grad_a = grad_a.view,
                                          .grad_b = grad_b.view,
                                          .grad_a_log = grad_a_log.view,
                                          .grad_dt_bias = grad_dt_bias.view,
                                          .accumulate = c.accumulate});
  });
  r.out["out"] = h.read(g);
  const Vector betas = h.read(beta);
  r.out["out"].insert(r.out["out"].end(), betas.begin(), betas.end());
  r.out["grad_a"] = h.read(grad_a);
  r.out["grad_b"] = h.read(grad_b);
  r.out["grad_a_log"] = h.read(grad_a_log);
  r.out["grad_dt_bias"] = h.read(grad_dt_bias);
  return r;
}

inline DeltaRuleShape shape_of(const DeltaRuleCase& c) {
  return {.tokens = std::accumulate(c.documents.begin(), c.documents.end(), int64_t{0}),
          .key_heads = c.key_heads,
          .value_heads = c.value_heads,
          .key_dim = c.key_dim,
          .value_dim = c.value_dim};
}

// q, k and v of all tokens are columns of one tensor, as in the model, and so are their gradients.
struct DeltaColumns {
  DeltaColumns(const Tensor& all, const DeltaRuleCase& c)
      : q(all.view.slice_cols(0, c.key_heads * c.key_dim)),
        k(all.view.slice_cols(q.cols, q.cols)),
        v(all.view.slice_cols(2 * q.cols, c.value_heads * c.value_dim)) {}
  static int64_t width(const DeltaRuleCase& c) { return 2 * c.key_heads * c.key_dim + c.value_heads * c.value_dim; }
  View q, k, v;
};

// Random q, k, v, gates, and the output's gradient, except those in `given`.
inline Values delta_inputs(Harness& h, const DeltaRuleCase& c, int64_t tokens, const Values& given) {
  Values in;
  in["q"] = h.random(tokens * c.key_heads * c.key_dim, c.dtype);
  in["k"] = h.random(tokens * c.key_heads * c.key_dim, c.dtype);
  in["v"] = h.random(tokens * c.value_heads * c.value_dim, c.dtype);
  in["g"] = h.random(tokens * c.value_heads, DType::f32, static_cast<double>(c.decay));
  in["beta"] = h.random(tokens * c.value_heads, DType::f32);
  for (double& g : in["g"]) g = -std::fabs(g);
  for (double& beta : in["beta"]) beta = stored(1 / (1 + std::exp(-beta)), DType::f32);
  in["grad_out"] = h.random(tokens * c.value_heads * c.value_dim, c.dtype);
  for (const auto& [name, values] : given) in.at(name) = values;
  return in;
}

inline OpRun run(Harness& h, const DeltaRuleCase& c, uint64_t seed, const Values& given = {}) {
  h.start(seed);
  OpRun r;
  const PackedDocuments documents(h, c.documents);
  const DeltaRuleShape shape = shape_of(c);
  const int64_t tokens = shape.tokens, values = c.value_heads * c.value_dim;
  r.in = delta_inputs(h, c, tokens, given);
  const Tensor qkv = h.poisoned(c.dtype, tokens, DeltaColumns::width(c), c.gap);
  const Tensor grad_qkv = h.poisoned(c.dtype, tokens, DeltaColumns::width(c), c.gap);
  const DeltaColumns in(qkv, c), grad(grad_qkv, c);
  h.write(qkv, in.q, r.in["q"]);
  h.write(qkv, in.k, r.in["k"]);
  h.write(qkv, in.v, r.in["v"]);
  const Tensor g = h.filled(DType::f32, tokens, c.value_heads, r.in["g"]),
               beta = h.filled(DType::f32, tokens, c.value_heads, r.in["beta"]),
               grad_out = h.filled(c.dtype, tokens, values, r.in["grad_out"], c.gap),
               out = h.poisoned(c.dtype, tokens, values, c.gap), grad_g = h.poisoned(DType::f32, tokens, c.value_heads),
               grad_beta = h.poisoned(DType::f32, tokens, c.value_heads);
  h.launch(r.seconds["forward"], [&] {
    h.ops.delta_rule_forward(h.stream, {.shape = shape,
                                        .documents = documents.view(),
                                        .q = in.q,
                                        .k = in.k,
                                        .v = in.v,
                                        .g = g.view,
                                        .beta = beta.view,
                                        .out = out.view});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.delta_rule_backward(h.stream, {.shape = shape,
                                         .documents = documents.view(),
                                         .q = in.q,
                                         .k = in.k,
                                         .v = in.v,
                                         .g = g.view,
                                         .beta = beta.view,
                                         .grad_out = grad_out.view,
                                         .grad_q = grad.q,
                                         .grad_k = grad.k,
                                         .grad_v = grad.v,
                                         .grad_g = grad_g.view,
                                         .grad_beta = grad_beta.view});
  });
  r.out["out"] = h.read(out);
  r.out["grad_q"] = h.read(grad_qkv, grad.q);
  r.out["grad_k"] = h.read(grad_qkv, grad.k);
  r.out["grad_v"] = h.read(grad_qkv, grad.v);
  r.out["grad_g"] = h.read(grad_g);
  r.out["grad_beta"] = h.read(grad_beta);
  return r;
}

inline constexpr float kGatedNormEps = 1e-6f;

inline OpRun run(Harness& h, const GatedNormCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const int64_t cols = c.heads * c.size;
  r.in["x"] = h.random(c.rows * cols, c.dtype);
  r.in["z"] = h.random(c.rows * cols, c.dtype);
  const int64_t weights = c.wide ? cols : c.size;
  r.in["weight"] = h.random(weights, c.dtype);
  r.in["grad_out"] = h.random(c.rows * cols, c.dtype);
  if (c.accumulate) r.in["before_weight"] = h.random(weights, DType::f32);
  const Tensor x = h.filled(c.dtype, c.rows, cols, r.in["x"], c.gap),
               z = h.filled(c.dtype, c.rows, cols, r.in["z"], c.gap),
               grad_out = h.filled(c.dtype, c.rows, cols, r.in["grad_out"], c.gap),
               weight = h.filled(c.dtype, 1, weights, r.in["weight"]);
  const Tensor out = h.poisoned(c.dtype, c.rows, cols, c.gap), apart_x = h.poisoned(c.dtype, c.rows, cols, c.gap),
               apart_z = h.poisoned(c.dtype, c.rows, cols, c.gap);
  const Tensor &grad_x = c.in_place ? grad_out : apart_x, &grad_z = c.in_place ? z : apart_z;
  const Tensor grad_weight =
      c.accumulate ? h.filled(DType::f32, 1, weights, r.in["before_weight"]) : h.poisoned(DType::f32, 1, weights);
  h.launch(r.seconds["forward"], [&] {
    h.ops.gated_norm_forward(h.stream, {.x = x.view,
                                        .z = z.view,
                                        .weight = weight.view,
                                        .eps = kGatedNormEps,
                                        .group = c.size,
                                        .gate_first = c.gate_first,
                                        .out = out.view});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.gated_norm_backward(h.stream, {.x = x.view,
                                         .z = z.view,
                                         .weight = weight.view,
                                         .eps = kGatedNormEps,
                                         .group = c.size,
                                         .gate_first = c.gate_first,
                                         .grad_out = grad_out.view,
                                         .grad_x = grad_x.view,
                                         .grad_z = grad_z.view,
                                         .grad_weight = grad_weight.view,
                                         .accumulate = c.accumulate});
  });
  r.out["out"] = h.read(out);
  r.out["grad_x"] = h.read(grad_x);
  r.out["grad_z"] = h.read(grad_z);
  r.out["grad_weight"] = h.read(grad_weight);
  return r;
}

}  // namespace megatrain::testing
