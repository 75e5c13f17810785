// How each op's case is run, forward and backward: run(harness, case, seed) -> inputs and outputs.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/ops/harness.h"
#include "tests/ops/run_delta_cases.h"
#include "tests/ops/run_expert_cases.h"
#include "tests/ops/run_ssd_cases.h"

namespace megatrain::testing {

// The sorted segments of an index list, in the form EmbeddingBackward takes. Negative indices are in none.
struct Segments {
  std::vector<int32_t> order, begin, row;
};
inline Segments segments_of(const std::vector<int32_t>& index, int32_t first = 0) {
  Segments s;
  s.order.resize(index.size());
  std::iota(s.order.begin(), s.order.end(), 0);
  std::stable_sort(s.order.begin(), s.order.end(), [&](int32_t a, int32_t b) { return index[a] < index[b]; });
  for (size_t i = 0; i < index.size(); ++i) {
    const int32_t row = index[s.order[i]];
    if (s.row.empty() || s.row.back() != row) {
      s.row.push_back(row);
      s.begin.push_back(static_cast<int32_t>(i));
    }
  }
  s.begin.push_back(static_cast<int32_t>(index.size()));
  if (!s.row.empty() && s.row.front() < 0) {
    s.row.erase(s.row.begin());
    s.begin.erase(s.begin.begin());
  }
  for (int32_t& position : s.order) position += first;
  return s;
}

inline OpRun run(Harness& h, const EmbeddingCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  std::vector<int32_t> index(static_cast<size_t>(c.tokens));
  for (size_t t = 0; t < index.size(); ++t)
    index[t] = c.holes && t % 3 == 1 ? -1 : static_cast<int32_t>(h.random_index(t, static_cast<uint64_t>(c.rows)));
  r.in["index"] = to_vector(index);
  r.in["table"] = h.random(c.rows * c.hidden, c.dtype);
  r.in["grad_out"] = h.random(c.tokens * c.hidden, c.dtype);
  r.in["before_table"] = h.random(c.rows * c.hidden, DType::f32);
  const Segments s = segments_of(index);
  const Buffer index_d = h.upload(index), order = h.upload(s.order), begin = h.upload(s.begin), row = h.upload(s.row);
  const Tensor table = h.filled(c.dtype, c.rows, c.hidden, r.in["table"]);
  const Tensor grad_out = h.filled(c.dtype, c.tokens, c.hidden, r.in["grad_out"]);
  const Tensor grad = h.filled(DType::f32, c.rows, c.hidden, r.in["before_table"]);
  Tensor out = h.poisoned(c.dtype, c.tokens, c.hidden);
  if (c.holes) {
    r.in["held"] = h.random(c.tokens * c.hidden, c.dtype);
    h.write(out, out.view, r.in["held"]);
  }
  h.launch(r.seconds["forward"], [&] {
    h.ops.embedding_forward(
        h.stream, {.table = table.view, .index = pointer<int32_t>(index_d), .scale = c.scale, .out = out.view});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.embedding_backward(h.stream, {.grad_out = grad_out.view,
                                        .order = pointer<int32_t>(order),
                                        .begin = pointer<int32_t>(begin),
                                        .row = pointer<int32_t>(row),
                                        .segments = static_cast<int64_t>(s.row.size()),
                                        .scale = c.scale,
                                        .grad = grad.view});
  });
  r.out["out"] = h.read(out);
  r.out["grad_table"] = h.read(grad);
  return r;
}

inline constexpr float kRmsNormEps = 1e-5f;

inline OpRun run(Harness& h, const RmsNormCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const int64_t cols = c.groups * c.size;
  r.in["x"] = h.random(c.rows * cols, c.dtype);
  r.in["weight"] = c.weightless ? Vector(static_cast<size_t>(c.size), 1.0) : h.random(c.size, c.dtype);
  r.in["grad_out"] = h.random(c.rows * cols, c.dtype);
  if (c.residual) r.in["before_x"] = h.random(c.rows * cols, c.dtype);
  if (c.accumulate) r.in["before_weight"] = h.random(c.size, DType::f32);
  if (c.adds) r.in["residual"] = h.random(c.rows * cols, c.dtype);
  const Tensor x = h.filled(c.dtype, c.rows, cols, r.in["x"], c.gap);
  const Tensor weight = c.weightless ? Tensor{} : h.filled(c.dtype, 1, c.size, r.in["weight"]);
  const Tensor grad_out = h.filled(c.dtype, c.rows, cols, r.in["grad_out"], c.gap);
  const Tensor residual = c.residual ? h.filled(c.dtype, c.rows, cols, r.in["before_x"]) : Tensor{};
  const Tensor grad_weight = c.weightless   ? Tensor{}
                             : c.accumulate ? h.filled(DType::f32, 1, c.size, r.in["before_weight"])
                                            : h.poisoned(DType::f32, 1, c.size);
  const Tensor added = c.adds ? h.filled(c.dtype, c.rows, cols, r.in["residual"], c.gap) : Tensor{};
  const Tensor apart =
      c.in_place ? h.filled(c.dtype, c.rows, cols, r.in["x"], c.gap) : h.poisoned(c.dtype, c.rows, cols, c.gap);
  const Tensor& out_d = c.adds && !c.in_place ? added : apart;
  const Tensor grad_x_d = h.poisoned(c.dtype, c.rows, cols, c.gap);
  const Tensor& grad_x = c.in_place ? grad_out : grad_x_d;
  const Tensor inv_rms = h.poisoned(DType::f32, c.rows, c.groups);
  h.launch(r.seconds["forward"], [&] {
    h.ops.rmsnorm_forward(h.stream, {.x = c.in_place ? out_d.view : x.view,
                                     .weight = weight.view,
                                     .weight_offset = c.weight_offset,
                                     .eps = kRmsNormEps,
                                     .groups = c.groups,
                                     .centred = c.centred,
                                     .residual = added.view,
                                     .out = out_d.view,
                                     .inv_rms = inv_rms.view.as<float>()});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.rmsnorm_backward(h.stream, {.x = x.view,
                                      .weight = weight.view,
                                      .weight_offset = c.weight_offset,
                                      .inv_rms = inv_rms.view.as<float>(),
                                      .groups = c.groups,
                                      .centred = c.centred,
                                      .grad_out = grad_out.view,
                                      .residual = residual.view,
                                      .grad_x = grad_x.view,
                                      .grad_weight = grad_weight.view,
                                      .accumulate = c.accumulate});
  });
  r.out["out"] = h.read(out_d);
  r.out["inv_rms"] = h.read(inv_rms);
  r.out["grad_x"] = h.read(grad_x);
  if (!c.weightless) r.out["grad_weight"] = h.read(grad_weight);
  return r;
}

inline OpRun run(Harness& h, const RopeCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const int64_t rotary = c.rotary_dim > 0 ? c.rotary_dim : c.head_dim;
  const int64_t cols = c.heads * c.head_dim, half = rotary / 2, positions = 50;
  std::vector<int32_t> position(static_cast<size_t>(c.rows));
  for (size_t t = 0; t < position.size(); ++t) position[t] = static_cast<int32_t>(h.random_index(t, positions));
  Vector cos(static_cast<size_t>(positions * half)), sin(cos.size());
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
      cos[static_cast<size_t>(p * half + i)] = stored(std::cos(angle), DType::f32);
      sin[static_cast<size_t>(p * half + i)] = stored(std::sin(angle), DType::f32);
    }
  }
  r.in["positions"] = to_vector(position);
  r.in["cos"] = cos;
  r.in["sin"] = sin;
  r.in["x"] = h.random(c.rows * cols, c.dtype);
  r.in["grad_out"] = h.random(c.rows * cols, c.dtype);
  const Buffer position_d = h.upload(position);
  const Tensor cos_d = h.filled(DType::f32, positions, half, cos), sin_d = h.filled(DType::f32, positions, half, sin);
  const Tensor x = h.filled(c.dtype, c.rows, cols, r.in["x"], c.gap);
  const Tensor grad = h.filled(c.dtype, c.rows, cols, r.in["grad_out"], c.gap);
  Rope args{.x = x.view,
            .heads = c.heads,
            .head_dim = c.head_dim,
            .rotary_dim = rotary,
            .pairs = c.pairs,
            .positions = pointer<int32_t>(position_d),
            .cos = cos_d.view.as<float>(),
            .sin = sin_d.view.as<float>(),
            .backward = false};
  h.launch(r.seconds["forward"], [&] { h.ops.rope(h.stream, args); });
  args.x = grad.view;
  args.backward = true;
  h.launch(r.seconds["backward"], [&] { h.ops.rope(h.stream, args); });
  r.out["out"] = h.read(x);
  r.out["grad_x"] = h.read(grad);
  return r;
}

inline OpRun run(Harness& h, const LinearCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const DType wide = c.wide_out ? DType::f32 : c.dtype;
  r.in["x"] = h.random(c.rows * c.in, c.dtype);
  r.in["weight"] = h.random(c.out * c.in, c.dtype);
  r.in["grad_out"] = h.random(c.rows * c.out, c.dtype);
  if (c.bias) r.in["bias"] = h.random(c.out, c.dtype);
  if (c.accumulate) {
    r.in["before_x"] = h.random(c.rows * c.in, wide);
    r.in["before_weight"] = h.random(c.out * c.in, DType::f32);
    if (c.bias) r.in["before_bias"] = h.random(c.out, DType::f32);
    r.in["residual"] = h.random(c.rows * c.out, wide);
  }
  const auto target = [&](DType dtype, int64_t rows, int64_t cols, const char* before, int64_t gap = 0) {
    return c.accumulate ? h.filled(dtype, rows, cols, r.in[before], gap) : h.poisoned(dtype, rows, cols, gap);
  };
  const Tensor x = h.filled(c.dtype, c.rows, c.in, r.in["x"], c.gap);
  const Tensor weight = h.filled(c.dtype, c.out, c.in, r.in["weight"]);
  const Tensor bias = c.bias ? h.filled(c.dtype, 1, c.out, r.in["bias"]) : Tensor{};
  const Tensor grad_out = h.filled(c.dtype, c.rows, c.out, r.in["grad_out"], c.gap);
  const Tensor residual = c.accumulate ? h.filled(wide, c.rows, c.out, r.in["residual"]) : Tensor{};
  const Tensor out = h.poisoned(wide, c.rows, c.out, c.gap);
  const Tensor grad_x = target(wide, c.rows, c.in, "before_x");
  const Tensor grad_weight = target(DType::f32, c.out, c.in, "before_weight");
  const Tensor grad_bias = c.bias ? target(DType::f32, 1, c.out, "before_bias") : Tensor{};
  h.launch(r.seconds["forward"], [&] {
    h.ops.linear_forward(h.stream, {.x = x.view,
                                    .weight = weight.view,
                                    .bias = bias.view,
                                    .residual = residual.view,
                                    .out = out.view,
                                    .scale = c.scale});
  });
  h.launch(r.seconds["backward_input"], [&] {
    h.ops.linear_backward_input(h.stream, {.grad_out = grad_out.view,
                                           .weight = weight.view,
                                           .grad_x = grad_x.view,
                                           .accumulate = c.accumulate,
                                           .scale = c.scale});
  });
  h.launch(r.seconds["backward_weight"], [&] {
    h.ops.linear_backward_weight(h.stream, {.grad_out = grad_out.view,
                                            .x = x.view,
                                            .grad_weight = grad_weight.view,
                                            .grad_bias = grad_bias.view,
                                            .accumulate = c.accumulate,
                                            .scale = c.scale});
  });
  r.out["out"] = h.read(out);
  r.out["grad_x"] = h.read(grad_x);
  r.out["grad_weight"] = h.read(grad_weight);
  if (c.bias) r.out["grad_bias"] = h.read(grad_bias);
  return r;
}

// The gradients are those that Linear makes of the two ops.
inline OpRun run(Harness& h, const DoraCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.in["weight"] = h.random(c.out * c.in, c.dtype);
  r.in["a"] = h.random(c.rank * c.in, c.dtype);
  r.in["b"] = h.random(c.out * c.rank, c.dtype);
  r.in["magnitude"] = h.random(c.out, c.dtype, 5.0);
  r.in["x"] = h.random(c.rows * c.out, c.dtype);
  r.in["grad_out"] = h.random(c.rows * c.out, c.dtype);
  if (c.bias) r.in["bias"] = h.random(c.out, c.dtype);
  if (c.adds) r.in["residual"] = h.random(c.rows * c.out, c.dtype);
  if (c.accumulate) r.in["before_magnitude"] = h.random(c.out, DType::f32);
  const Tensor weight = h.filled(c.dtype, c.out, c.in, r.in["weight"]), a = h.filled(c.dtype, c.rank, c.in, r.in["a"]),
               b = h.filled(c.dtype, c.out, c.rank, r.in["b"]),
               magnitude = h.filled(c.dtype, 1, c.out, r.in["magnitude"]);
  const Tensor factors = h.poisoned(DType::f32, 1, c.out), inv_norms = h.poisoned(DType::f32, 1, c.out);
  const Tensor x = h.filled(c.dtype, c.rows, c.out, r.in["x"], c.gap),
               grad_out = h.filled(c.dtype, c.rows, c.out, r.in["grad_out"], c.gap);
  const Tensor bias = c.bias ? h.filled(c.dtype, 1, c.out, r.in["bias"]) : Tensor{};
  const Tensor out =
      c.adds ? h.filled(c.dtype, c.rows, c.out, r.in["residual"], c.gap) : h.poisoned(c.dtype, c.rows, c.out, c.gap);
  const Tensor grad_x = h.poisoned(c.dtype, c.rows, c.out);
  const Tensor grad_magnitude =
      c.accumulate ? h.filled(DType::f32, 1, c.out, r.in["before_magnitude"]) : h.poisoned(DType::f32, 1, c.out);
  h.launch(r.seconds["factors"], [&] {
    h.ops.dora_factors(h.stream, {.weight = weight.view,
                                  .a = a.view,
                                  .b = b.view,
                                  .scale = c.scale,
                                  .magnitude = magnitude.view,
                                  .factors = factors.view,
                                  .inv_norms = inv_norms.view});
  });
  h.launch(r.seconds["forward"], [&] {
    h.ops.scale_columns(h.stream, {.x = x.view,
                                   .factors = factors.view,
                                   .offset = c.offset,
                                   .times = {},
                                   .bias = bias.view,
                                   .residual = c.adds ? out.view : View{},
                                   .out = out.view});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.scale_columns(h.stream, {.x = grad_out.view,
                                   .factors = factors.view,
                                   .offset = c.offset,
                                   .times = {},
                                   .bias = {},
                                   .residual = {},
                                   .out = grad_x.view});
  });
  h.ops.scale_columns(
      h.stream,
      {.x = x.view, .factors = inv_norms.view, .times = grad_out.view, .bias = {}, .residual = {}, .out = x.view});
  h.ops.linear_backward_weight(
      h.stream,
      {.grad_out = x.view, .x = {}, .grad_weight = {}, .grad_bias = grad_magnitude.view, .accumulate = c.accumulate});
  r.out["factors"] = h.read(factors);
  r.out["inv_norms"] = h.read(inv_norms);
  r.out["out"] = h.read(out);
  r.out["grad_x"] = h.read(grad_x);
  r.out["grad_magnitude"] = h.read(grad_magnitude);
  return r;
}

inline int64_t tokens_of(const AttentionCase& c) {
  return std::accumulate(c.documents.begin(), c.documents.end(), int64_t{0});
}

inline AttentionShape shape_of(const AttentionCase& c) {
  return {.tokens = tokens_of(c),
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .window = c.window,
          .scale = c.scale > 0 ? c.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))),
          .cap = c.cap};
}

// q, k and v are views into one (T, (heads + 2 kv_heads) D) tensor, as in the model, and so are their gradients. Inputs
// are random except those in `given`.
inline OpRun run(Harness& h, const AttentionCase& c, uint64_t seed, const Values& given = {}) {
  h.start(seed);
  OpRun r;
  const AttentionShape shape = shape_of(c);
  const int64_t tokens = shape.tokens, q_cols = c.heads * c.head_dim, kv_cols = c.kv_heads * c.head_dim;
  r.in["q"] = h.random(tokens * q_cols, c.dtype);
  r.in["k"] = h.random(tokens * kv_cols, c.dtype);
  r.in["v"] = h.random(tokens * kv_cols, c.dtype);
  r.in["grad_out"] = h.random(tokens * q_cols, c.dtype);
  if (c.sinks) r.in["sinks"] = h.random(c.heads, c.dtype, 2.0);
  if (c.accumulate) r.in["before_sinks"] = h.random(c.heads, DType::f32);
  for (const auto& [name, values] : given) r.in.at(name) = values;
  std::vector<int32_t> begin{0};
  for (int32_t size : c.documents) begin.push_back(begin.back() + size);
  const int32_t longest = *std::max_element(c.documents.begin(), c.documents.end());
  const int32_t shortest = *std::min_element(c.documents.begin(), c.documents.end());
  const Buffer begin_d = h.upload(begin);
  const Documents documents{.begin = pointer<int32_t>(begin_d),
                            .host_begin = begin.data(),
                            .count = static_cast<int64_t>(c.documents.size()),
                            .longest = longest,
                            .uniform = longest == shortest};
  h.ops.reserve({.dtype = c.dtype,
                 .tokens = tokens,
                 .attention = {shape},
                 .hidden = q_cols,
                 .ff = q_cols,
                 .max_documents = documents.count,
                 .longest_document = longest});
  struct Parts {
    View q, k, v;
  };
  const auto split = [&](const Tensor& tensor) {
    return Parts{tensor.view.slice_cols(0, q_cols), tensor.view.slice_cols(q_cols, kv_cols),
                 tensor.view.slice_cols(q_cols + kv_cols, kv_cols)};
  };
  const Tensor qkv = h.poisoned(c.dtype, tokens, q_cols + 2 * kv_cols);
  const Tensor grad_qkv = h.poisoned(c.dtype, tokens, q_cols + 2 * kv_cols);
  const Parts in = split(qkv), grad = split(grad_qkv);
  h.write(qkv, in.q, r.in["q"]);
  h.write(qkv, in.k, r.in["k"]);
  h.write(qkv, in.v, r.in["v"]);
  const Tensor out = h.poisoned(c.dtype, tokens, q_cols);
  const Tensor grad_out = h.filled(c.dtype, tokens, q_cols, r.in["grad_out"]);
  const Tensor lse = h.poisoned(DType::f32, c.heads, tokens);
  const Tensor sinks = c.sinks ? h.filled(c.dtype, 1, c.heads, r.in["sinks"]) : Tensor{};
  const Tensor grad_sinks = !c.sinks       ? Tensor{}
                            : c.accumulate ? h.filled(DType::f32, 1, c.heads, r.in["before_sinks"])
                                           : h.poisoned(DType::f32, 1, c.heads);
  h.launch(r.seconds["forward"], [&] {
    h.ops.attention_forward(h.stream, {.shape = shape,
                                       .documents = documents,
                                       .q = in.q,
                                       .k = in.k,
                                       .v = in.v,
                                       .sinks = sinks.view,
                                       .out = out.view,
                                       .lse = lse.view.as<float>()});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.attention_backward(h.stream, {.shape = shape,
                                        .documents = documents,
                                        .q = in.q,
                                        .k = in.k,
                                        .v = in.v,
                                        .sinks = sinks.view,
                                        .out = out.view,
                                        .lse = lse.view.as<float>(),
                                        .grad_out = grad_out.view,
                                        .grad_q = grad.q,
                                        .grad_k = grad.k,
                                        .grad_v = grad.v,
                                        .grad_sinks = grad_sinks.view,
                                        .accumulate = c.accumulate});
  });
  r.out["out"] = h.read(out);
  r.out["grad_q"] = h.read(grad_qkv, grad.q);
  r.out["grad_k"] = h.read(grad_qkv, grad.k);
  r.out["grad_v"] = h.read(grad_qkv, grad.v);
  if (c.sinks) r.out["grad_sinks"] = h.read(grad_sinks);
  return r;
}

inline OpRun run(Harness& h, const GatedCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.in["gate_up"] = h.random(c.rows * parts_of(c.activation) * c.size, c.dtype, 3.0);
  r.in["grad_out"] = h.random(c.rows * c.size, c.dtype);
  if (c.row_gate) r.in["row_gate"] = h.random(c.rows, c.dtype, 2.0);
  const Tensor gate_up = h.filled(c.dtype, c.rows, parts_of(c.activation) * c.size, r.in["gate_up"]);
  const Tensor row_gate = c.row_gate ? h.filled(c.dtype, c.rows, 1, r.in["row_gate"]) : Tensor{};
  const Tensor grad_row_gate = c.row_gate ? h.poisoned(c.dtype, c.rows, 1) : Tensor{};
  const Tensor grad_out = h.filled(c.dtype, c.rows, c.size, r.in["grad_out"]);
  const Tensor out = h.poisoned(c.dtype, c.rows, c.size);
  const Tensor apart = h.poisoned(c.dtype, c.rows, parts_of(c.activation) * c.size);
  const Tensor& grad = c.in_place ? gate_up : apart;
  h.launch(r.seconds["forward"], [&] {
    h.ops.gated_forward(
        h.stream, {.gate_up = gate_up.view, .row_gate = row_gate.view, .out = out.view, .activation = c.activation});
  });
  const Tensor repeated = h.poisoned(c.dtype, c.rows, c.size);
  h.launch(r.seconds["backward"], [&] {
    h.ops.gated_backward(h.stream, {.gate_up = gate_up.view,
                                    .row_gate = row_gate.view,
                                    .grad_out = grad_out.view,
                                    .grad_gate_up = grad.view,
                                    .grad_row_gate = grad_row_gate.view,
                                    .out = repeated.view,
                                    .activation = c.activation});
  });
  r.out["out"] = h.read(out);
  EXPECT_EQ(h.read(repeated), r.out["out"]) << "backward repeats the forward's output bit for bit";
  r.out["grad_gate_up"] = h.read(grad);
  if (c.row_gate) r.out["grad_row_gate"] = h.read(grad_row_gate);
  return r;
}

inline OpRun run(Harness& h, const OutputGateCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.in["x"] = h.random(c.rows * c.size, c.dtype);
  r.in["gate"] = h.random(c.rows * c.size, c.dtype, 3.0);
  r.in["grad_out"] = h.random(c.rows * c.size, c.dtype);
  const Tensor x = h.filled(c.dtype, c.rows, c.size, r.in["x"]);
  // A row of gates is the second half of a row, as behind each head of the queries.
  const Tensor wide = h.poisoned(c.dtype, c.rows, 2 * c.size), grad_wide = h.poisoned(c.dtype, c.rows, 2 * c.size);
  const View gate = wide.view.slice_cols(c.size, c.size), grad_gate = grad_wide.view.slice_cols(c.size, c.size);
  h.write(wide, gate, r.in["gate"]);
  const Tensor grad_out = h.filled(c.dtype, c.rows, c.size, r.in["grad_out"]);
  const Tensor out = h.poisoned(c.dtype, c.rows, c.size), apart = h.poisoned(c.dtype, c.rows, c.size);
  const Tensor& grad_x = c.in_place ? grad_out : apart;
  h.launch(r.seconds["forward"],
           [&] { h.ops.output_gate_forward(h.stream, {.x = x.view, .gate = gate, .out = out.view, .form = c.form}); });
  h.launch(r.seconds["backward"], [&] {
    h.ops.output_gate_backward(h.stream, {.x = x.view,
                                          .gate = gate,
                                          .grad_out = grad_out.view,
                                          .grad_x = grad_x.view,
                                          .grad_gate = grad_gate,
                                          .form = c.form});
  });
  r.out["out"] = h.read(out);
  r.out["grad_x"] = h.read(grad_x);
  r.out["grad_gate"] = h.read(grad_wide, grad_gate);
  return r;
}

inline OpRun run(Harness& h, const CrossEntropyCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.in["logits"] = h.random(c.rows * c.vocab, c.dtype, c.amplitude);
  r.in["scale"] = {stored(1.0 / static_cast<double>(c.rows), DType::f32)};
  if (c.token_scales) r.in["token_scales"] = h.random(c.rows, DType::f32);
  std::vector<int32_t> labels(static_cast<size_t>(c.rows));
  for (int64_t t = 0; t < c.rows; ++t) {
    double* row = r.in["logits"].data() + t * c.vocab;
    int64_t label = static_cast<int64_t>(h.random_index(static_cast<uint64_t>(t), static_cast<uint64_t>(c.vocab)));
    const int64_t best = std::max_element(row, row + c.vocab) - row;
    if (t % 2 == 1) label = best;
    if (c.ties && t % 3 == 1) row[c.vocab - 1] = row[best];  // the first of equals wins
    if (c.ties && t % 3 == 2) label = c.vocab - 1, row[label] = row[best];
    if (c.ignore_every > 0 && t % c.ignore_every == c.ignore_every - 1) label = kIgnoreLabel;
    labels[static_cast<size_t>(t)] = static_cast<int32_t>(label);
  }
  r.in["labels"] = to_vector(labels);
  const Buffer labels_d = h.upload(labels);
  const Tensor logits = h.filled(c.dtype, c.rows, c.vocab, r.in["logits"]);
  const Tensor loss = h.poisoned(DType::f32, 1, c.rows), only_loss = h.poisoned(DType::f32, 1, c.rows);
  const Buffer correct = h.upload(std::vector<int32_t>(labels.size(), -1));
  const Tensor scales = c.token_scales ? h.filled(DType::f32, 1, c.rows, r.in["token_scales"]) : Tensor{};
  CrossEntropy args{.logits = logits.view,
                    .labels = pointer<int32_t>(labels_d),
                    .scale = static_cast<float>(r.in["scale"][0]),
                    .loss = only_loss.view.as<float>(),
                    .correct = pointer<int32_t>(correct),
                    .backward = false,
                    .token_scales = c.token_scales ? scales.view.as<float>() : nullptr,
                    .cap = c.cap};
  h.launch(r.seconds["forward"], [&] { h.ops.cross_entropy(h.stream, args); });
  r.out["untouched_logits"] = h.read(logits);
  r.out["loss"] = h.read(only_loss);
  args.loss = loss.view.as<float>();
  args.backward = true;
  h.launch(r.seconds["both"], [&] { h.ops.cross_entropy(h.stream, args); });
  r.out["loss_with_backward"] = h.read(loss);
  r.out["correct"] = to_vector(h.download_as<int32_t>(correct, c.rows));
  r.out["grad_logits"] = h.read(logits);
  if (c.cap > 0) {
    const Tensor capped = h.filled(DType::f32, c.rows, c.vocab, r.in["logits"]);
    h.ops.cap_logits(h.stream, {.logits = capped.view, .cap = c.cap});
    r.out["capped"] = h.read(capped);
  }
  return r;
}

// A part has the same bits alone as when other parts are summed in the same call.
inline OpRun run(Harness& h, const FinishGradientCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.in["grad"] = h.random(c.count, DType::f32);
  const Tensor grad = h.filled(DType::f32, 1, c.count, r.in["grad"]);
  const Tensor out = h.poisoned(c.dtype, 1, c.count);
  const Buffer partials = h.device.allocate(
      static_cast<size_t>((c.count + kNormBlock - 1) / kNormBlock + c.parts) * sizeof(double), "test");
  const Buffer sums = h.device.allocate(static_cast<size_t>(c.parts) * sizeof(double), "test");
  const auto finish = [&](const View& from, const View& to, int64_t parts) {
    h.ops.finish_gradient(h.stream, {.grad = from,
                                     .dtype = c.dtype,
                                     .out = to,
                                     .parts = parts,
                                     .partials = pointer<double>(partials),
                                     .sums_of_squares = pointer<double>(sums)});
  };
  h.launch(r.seconds["forward"], [&] { finish(grad.view, out.view, c.parts); });
  r.out["out"] = h.read(out);
  const auto found = r.out["sums_of_squares"] = h.download_as<double>(sums, c.parts);
  finish(grad.view, {}, c.parts);
  EXPECT_EQ(h.download_as<double>(sums, c.parts), found) << "storing the rounded gradient changes no sum";
  const int64_t size = c.count / c.parts;
  for (int64_t part = 0; part < c.parts; ++part) {
    finish(vector(grad.view.as<float>() + part * size, DType::f32, size), {}, 1);
    EXPECT_EQ(h.download_as<double>(sums, 1)[0], found[static_cast<size_t>(part)]) << "part " << part;
  }
  return r;
}

inline OpRun run(Harness& h, const SumLossesCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.in["loss"] = h.random(c.tokens, DType::f32);
  std::vector<int32_t> correct(static_cast<size_t>(c.tokens));
  for (size_t t = 0; t < correct.size(); ++t) correct[t] = static_cast<int32_t>(h.random_index(t, 2));
  r.in["correct"] = to_vector(correct);
  const Tensor loss = h.filled(DType::f32, 1, c.tokens, r.in["loss"]);
  const Buffer correct_d = h.upload(correct);
  const Buffer loss_sum = h.device.allocate(sizeof(double), "test"),
               correct_sum = h.device.allocate(sizeof(int64_t), "test");
  h.launch(r.seconds["forward"], [&] {
    h.ops.sum_losses(h.stream, {.loss = loss.view.as<float>(),
                                .correct = pointer<int32_t>(correct_d),
                                .tokens = c.tokens,
                                .loss_sum = pointer<double>(loss_sum),
                                .correct_sum = pointer<int64_t>(correct_sum)});
  });
  r.out["loss_sum"] = h.download_as<double>(loss_sum, 1);
  r.out["correct_sum"] = {static_cast<double>(h.download_as<int64_t>(correct_sum, 1)[0])};
  return r;
}

struct NamedCase {
  std::string name;
  DType dtype;
  std::function<OpRun(Harness&, uint64_t seed)> run;
};

// Every case of every op.
inline std::vector<NamedCase> all_cases() {
  std::vector<NamedCase> list;
  const auto append = [&](const auto& cases) {
    for (const auto& c : cases) {
      list.push_back({name_of(c), c.dtype, [c](Harness& h, uint64_t seed) { return run(h, c, seed); }});
    }
  };
  append(kEmbeddingCases);
  append(kRmsNormCases);
  append(kRopeCases);
  append(kLinearCases);
  append(kDoraCases);
  append(kAttentionCases);
  append(kGatedCases);
  append(kOutputGateCases);
  append(kShortConvCases);
  append(kDeltaGatesCases);
  append(kDeltaRuleCases);
  append(kSsdGatesCases);
  append(kSsdCases);
  append(kGatedNormCases);
  append(kRouteCases);
  append(kExpertRowsCases);
  append(kExpertsLinearCases);
  append(kExpertsGatedCases);
  append(kCrossEntropyCases);
  append(kFinishGradientCases);
  append(kSumLossesCases);
  return list;
}

}  // namespace megatrain::testing
