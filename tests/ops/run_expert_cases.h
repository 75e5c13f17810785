// How the MoE cases are run; run_cases.h has the others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/harness.h"

namespace megatrain::testing {

inline OpRun run(Harness& h, const RouteCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.exact = {"experts", "choice_counts", "tokens"};
  const int64_t pairs = c.tokens * c.choices;
  r.in["logits"] = h.random(c.tokens * c.experts, DType::f32, 2.0);
  if (c.ties) {
    for (int64_t t = 0; t < c.tokens; ++t) {
      double* row = r.in["logits"].data() + t * c.experts;
      if (t % 3 == 1) std::fill(row, row + c.experts, row[0]);
      if (t % 3 == 2) std::copy(row, row + c.experts / 2, row + (c.experts + 1) / 2);
    }
  }
  r.in["grad_weights"] = h.random(pairs, DType::f32);
  if (c.bias) r.in["bias"] = h.random(c.experts, DType::f32, 0.2);
  if (c.losses) {
    r.in["grad_probability"] = h.random(c.experts, DType::f32);
    r.in["grad_squared_lse"] = {stored(0.03, DType::f32)};
  }
  std::vector<int32_t> counted(static_cast<size_t>(c.tokens), 1);
  for (int64_t t = 0; c.ignore_every > 0 && t < c.tokens; t += c.ignore_every) counted[static_cast<size_t>(t)] = 0;
  r.in["counted"] = to_vector(counted);
  const Buffer counted_d = h.upload(counted);
  const int32_t* counts = c.ignore_every > 0 ? pointer<int32_t>(counted_d) : nullptr;
  const Tensor logits = h.filled(DType::f32, c.tokens, c.experts, r.in["logits"], 2);
  const Tensor bias = c.bias ? h.filled(DType::f32, 1, c.experts, r.in["bias"]) : Tensor{};
  const Tensor grad_weights = h.filled(DType::f32, 1, pairs, r.in["grad_weights"]);
  const Tensor grad_probability = c.losses ? h.filled(DType::f32, 1, c.experts, r.in["grad_probability"]) : Tensor{};
  const Buffer experts = h.upload(std::vector<int32_t>(static_cast<size_t>(pairs), -1));
  const Tensor weights = h.poisoned(DType::f32, 1, pairs);
  const Tensor grad_logits = h.poisoned(c.dtype, c.tokens, c.experts, 3);
  h.launch(r.seconds["forward"], [&] {
    h.ops.route(h.stream, {.logits = logits.view,
                           .choice_bias = bias.view,
                           .score = c.score,
                           .groups = c.groups,
                           .kept_groups = c.kept_groups,
                           .scale = c.scale,
                           .choices = c.choices,
                           .experts = pointer<int32_t>(experts),
                           .weights = weights.view.as<float>()});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.route_backward(h.stream, {.logits = logits.view,
                                    .score = c.score,
                                    .scale = c.scale,
                                    .choices = c.choices,
                                    .experts = pointer<int32_t>(experts),
                                    .grad_weights = grad_weights.view.as<float>(),
                                    .grad_probability = grad_probability.view,
                                    .grad_squared_lse = c.losses ? 0.03f : 0.0f,
                                    .counted = counts,
                                    .grad_logits = grad_logits.view});
  });
  // all of these are accumulated into
  const Buffer choice_counts = h.upload(std::vector<int64_t>(static_cast<size_t>(c.choices * c.experts), 2)),
               probability = h.upload(std::vector<double>(static_cast<size_t>(c.experts), 0.25)),
               squared_lse = h.upload(std::vector<double>{0.5}), tokens = h.upload(std::vector<int64_t>{7});
  h.launch(r.seconds["count"], [&] {
    h.ops.count_experts(h.stream, {.experts = pointer<int32_t>(experts),
                                   .counted = counts,
                                   .logits = logits.view,
                                   .choices = c.choices,
                                   .choice_counts = pointer<int64_t>(choice_counts),
                                   .probability = pointer<double>(probability),
                                   .squared_lse = pointer<double>(squared_lse),
                                   .tokens = pointer<int64_t>(tokens)});
  });
  r.out["experts"] = to_vector(h.download_as<int32_t>(experts, pairs));
  r.out["weights"] = h.read(weights);
  r.out["grad_logits"] = h.read(grad_logits);
  r.out["choice_counts"] = to_vector(h.download_as<int64_t>(choice_counts, c.choices * c.experts));
  r.out["probability"] = h.download_as<double>(probability, c.experts);
  r.out["squared_lse"] = h.download_as<double>(squared_lse, 1);
  r.out["tokens"] = to_vector(h.download_as<int64_t>(tokens, 1));
  r.in["experts"] = r.out["experts"];
  return r;
}

// For three layers' counts with other words between them; counts too large for fp32.
inline void check_balance_slopes(Harness& h) {
  constexpr int64_t kLayers = 3, kChoices = 2, kExperts = 131, kStride = kChoices * kExperts + 5;
  constexpr double kFactor = 0.3 / 7e6;
  std::vector<int64_t> words(kLayers * kStride, -1'000'000);
  std::vector<double> wanted(kExperts, 0);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (int64_t i = 0; i < kChoices * kExperts; ++i) {
      const int64_t count = (int64_t{1} << 24) + 7 * i + 1001 * layer;
      words[static_cast<size_t>(layer * kStride + i)] = count;
      wanted[static_cast<size_t>(i % kExperts)] += static_cast<double>(count);
    }
  }
  for (double& value : wanted) value = static_cast<double>(static_cast<float>(kFactor * value));
  const Buffer counts = h.upload(words), slopes = h.upload(std::vector<float>(kExperts, NAN));
  h.ops.balance_slopes(h.stream, {.choice_counts = pointer<int64_t>(counts),
                                  .layers = kLayers,
                                  .stride = kStride,
                                  .choices = kChoices,
                                  .experts = kExperts,
                                  .factor = kFactor,
                                  .slopes = pointer<float>(slopes)});
  EXPECT_EQ(to_vector(h.download_as<float>(slopes, kExperts)), wanted);
}

// Distinct random experts for each token; expert 1 stays idle if there are enough.
inline std::vector<int32_t> random_choices(Harness& h, int64_t tokens, int64_t experts, int64_t choices) {
  std::vector<int32_t> list;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int32_t> free;
    for (int32_t e = 0; e < experts; ++e) {
      if (e != 1 || choices == experts) free.push_back(e);
    }
    for (int64_t j = 0; j < choices; ++j) {
      const auto at = static_cast<std::ptrdiff_t>(h.random_index(static_cast<uint64_t>(t * choices + j), free.size()));
      list.push_back(free[static_cast<size_t>(at)]);
      free.erase(free.begin() + at);
    }
  }
  return list;
}

inline OpRun run(Harness& h, const ExpertRowsCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  r.exact = {"begin", "pair_of_row", "row_of_pair", "gathered"};
  const int64_t pairs = c.tokens * c.choices, count = c.count > 0 ? c.count : c.experts - c.first;
  const std::vector<int32_t> experts = random_choices(h, c.tokens, c.experts, c.choices);
  const int64_t rows =
      std::count_if(experts.begin(), experts.end(), [&](int32_t e) { return e >= c.first && e < c.first + count; });
  const int64_t most = rows + 3;
  r.in["experts"] = to_vector(experts);
  r.in["x"] = h.random(c.tokens * c.hidden, c.dtype);
  r.in["rows"] = h.random(rows * c.hidden, c.dtype);
  r.in["weights"] = h.random(pairs, DType::f32);
  r.in["from"] = h.random(c.tokens * c.hidden, DType::f32);
  const Buffer experts_d = h.upload(experts);
  const auto integers = [&](int64_t size) { return h.upload(std::vector<int32_t>(static_cast<size_t>(size), -1)); };
  const Buffer begin = integers(c.experts + 1), pair_of_row = integers(pairs), row_of_pair = integers(pairs);
  const Tensor x = h.filled(c.dtype, c.tokens, c.hidden, r.in["x"], 2);
  const Tensor weights = h.filled(DType::f32, 1, pairs, r.in["weights"]);
  const Tensor gathered = h.poisoned(c.dtype, most, c.hidden), buffer = h.poisoned(c.dtype, most, c.hidden);
  h.write(buffer, buffer.view.slice_rows(0, rows), r.in["rows"]);
  const Tensor from = h.filled(DType::f32, c.tokens, c.hidden, r.in["from"]);
  const Tensor into = h.filled(DType::f32, c.tokens, c.hidden, r.in["from"]);
  const Tensor sum = h.poisoned(c.dtype, c.tokens, c.hidden), alone = h.poisoned(c.dtype, c.tokens, c.hidden);
  const ExpertRows group{.begin = pointer<int32_t>(begin) + c.first, .experts = count, .most = most, .expected = rows};
  h.launch(r.seconds["sort"], [&] {
    h.ops.sort_by_expert(h.stream, {.experts = pointer<int32_t>(experts_d),
                                    .pairs = pairs,
                                    .count = c.experts,
                                    .begin = pointer<int32_t>(begin),
                                    .pair_of_row = pointer<int32_t>(pair_of_row),
                                    .row_of_pair = pointer<int32_t>(row_of_pair)});
  });
  h.launch(r.seconds["gather"], [&] {
    h.ops.gather_rows(h.stream, {.x = x.view,
                                 .pair_of_row = pointer<int32_t>(pair_of_row),
                                 .choices = c.choices,
                                 .rows = group,
                                 .out = gathered.view});
  });
  CombineRows args{.experts = pointer<int32_t>(experts_d),
                   .row_of_pair = pointer<int32_t>(row_of_pair),
                   .weights = weights.view.as<float>(),
                   .choices = c.choices,
                   .first_expert = c.first,
                   .rows = group,
                   .x = buffer.view,
                   .from = from.view,
                   .out = sum.view};
  h.launch(r.seconds["combine"], [&] { h.ops.combine_rows(h.stream, args); });
  args.from = {};
  args.out = alone.view;
  h.launch(r.seconds["combine_alone"], [&] { h.ops.combine_rows(h.stream, args); });
  args.weights = nullptr;
  args.from = args.out = into.view;
  args.descending = true;
  h.launch(r.seconds["combine_descending"], [&] { h.ops.combine_rows(h.stream, args); });
  r.out["begin"] = to_vector(h.download_as<int32_t>(begin, c.experts + 1));
  r.out["pair_of_row"] = to_vector(h.download_as<int32_t>(pair_of_row, pairs));
  r.out["row_of_pair"] = to_vector(h.download_as<int32_t>(row_of_pair, pairs));
  r.out["gathered"] = h.read(gathered, gathered.view.slice_rows(0, rows));
  h.expect_untouched(gathered, rows);
  r.out["sum"] = h.read(sum);
  r.out["alone"] = h.read(alone);
  r.out["descending"] = h.read(into);
  return r;
}

// Rows for experts with given row counts, in buffers that hold more.
struct GivenRows {
  GivenRows(Harness& h, const std::vector<int32_t>& rows, int32_t before) : begin{before} {
    for (int32_t size : rows) begin.push_back(begin.back() + size);
    count = begin.back() - before;
    begin_d = h.upload(begin);
    args = {.begin = pointer<int32_t>(begin_d),
            .experts = static_cast<int64_t>(rows.size()),
            .most = count + 5,
            .expected = count};
  }

  Tensor filled(Harness& h, DType dtype, int64_t cols, const Vector& values, int64_t gap = 0) const {
    Tensor tensor = h.poisoned(dtype, args.most, cols, gap);
    h.write(tensor, tensor.view.slice_rows(0, count), values);
    return tensor;
  }
  Vector read(Harness& h, const Tensor& tensor) const {
    h.expect_untouched(tensor, count);
    return h.read(tensor, tensor.view.slice_rows(0, count));
  }

  std::vector<int32_t> begin;
  int64_t count = 0;
  Buffer begin_d;
  ExpertRows args;
};

// (rows, cols) for each expert, from a view with one row per expert; none from an empty view.
inline ExpertWeights weights_in(const View& by_expert, int64_t rows, int64_t cols) {
  if (by_expert.empty()) return {};
  return {.first = {by_expert.data, by_expert.dtype, rows, cols, cols}, .stride = by_expert.row_stride};
}

inline OpRun run(Harness& h, const ExpertsLinearCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const GivenRows rows(h, c.rows, c.before);
  const int64_t experts = rows.args.experts;
  r.in["x"] = h.random(rows.count * c.in, c.dtype);
  r.in["weight"] = h.random(experts * c.out * c.in, c.dtype);
  r.in["grad_out"] = h.random(rows.count * c.out, c.dtype);
  if (c.bias) r.in["bias"] = h.random(experts * c.out, c.dtype);
  if (c.accumulate) r.in["before_weight"] = h.random(experts * c.out * c.in, DType::f32);
  if (c.accumulate && c.bias) r.in["before_bias"] = h.random(experts * c.out, DType::f32);
  const auto target = [&](int64_t cols, const char* before) {
    return c.accumulate ? h.filled(DType::f32, experts, cols, r.in[before], c.gap)
                        : h.poisoned(DType::f32, experts, cols, c.gap);
  };
  const Tensor x = rows.filled(h, c.dtype, c.in, r.in["x"], c.gap);
  const Tensor grad_out = rows.filled(h, c.dtype, c.out, r.in["grad_out"], c.gap);
  const Tensor weight = h.filled(c.dtype, experts, c.out * c.in, r.in["weight"], c.gap);
  const Tensor bias = c.bias ? h.filled(c.dtype, experts, c.out, r.in["bias"], c.gap) : Tensor{};
  const Tensor out = h.poisoned(c.dtype, rows.args.most, c.out), grad_x = h.poisoned(c.dtype, rows.args.most, c.in);
  const Tensor grad_weight = target(c.out * c.in, "before_weight");
  const Tensor grad_bias = c.bias ? target(c.out, "before_bias") : Tensor{};
  const ExpertWeights weights = weights_in(weight.view, c.out, c.in);
  h.launch(r.seconds["forward"], [&] {
    h.ops.experts_forward(
        h.stream,
        {.rows = rows.args, .x = x.view, .weight = weights, .bias = weights_in(bias.view, 1, c.out), .out = out.view});
  });
  h.launch(r.seconds["backward_input"], [&] {
    h.ops.experts_backward_input(
        h.stream, {.rows = rows.args, .grad_out = grad_out.view, .weight = weights, .grad_x = grad_x.view});
  });
  h.launch(r.seconds["backward_weight"], [&] {
    h.ops.experts_backward_weight(h.stream, {.rows = rows.args,
                                             .grad_out = grad_out.view,
                                             .x = x.view,
                                             .grad_weight = weights_in(grad_weight.view, c.out, c.in),
                                             .grad_bias = weights_in(grad_bias.view, 1, c.out),
                                             .accumulate = c.accumulate});
  });
  r.out["out"] = rows.read(h, out);
  r.out["grad_x"] = rows.read(h, grad_x);
  r.out["grad_weight"] = h.read(grad_weight);
  if (c.bias) r.out["grad_bias"] = h.read(grad_bias);
  return r;
}

// Scaled products, and products that are added to what is there, of shapes as adapters have them: against float64.
inline void check_scaled_products(Harness& h) {
  constexpr double kScale = 1.75;
  const std::vector<int32_t> rows_of = {70, 0, 3, 130};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{136, 16}, {16, 264}, {40, 3}, {5, 72}}) {
      h.start(31);
      const GivenRows rows(h, rows_of, 9);
      const int64_t experts = rows.args.experts;
      const Vector x = h.random(rows.count * in, dtype), grad = h.random(rows.count * out, dtype),
                   weight = h.random(experts * out * in, dtype), before_out = h.random(rows.count * out, dtype),
                   before_x = h.random(rows.count * in, dtype);
      const Tensor x_d = rows.filled(h, dtype, in, x), grad_d = rows.filled(h, dtype, out, grad),
                   weight_d = h.filled(dtype, experts, out * in, weight);
      const ExpertWeights weights = weights_in(weight_d.view, out, in);
      for (const bool add : {false, true}) {
        const Tensor to = rows.filled(h, dtype, out, before_out), to_x = rows.filled(h, dtype, in, before_x);
        const Tensor to_weight = h.poisoned(DType::f32, experts, out * in);
        h.ops.experts_forward(h.stream, {.rows = rows.args,
                                         .x = x_d.view,
                                         .weight = weights,
                                         .bias = {},
                                         .out = to.view,
                                         .accumulate = add,
                                         .scale = static_cast<float>(kScale)});
        h.ops.experts_backward_input(h.stream, {.rows = rows.args,
                                                .grad_out = grad_d.view,
                                                .weight = weights,
                                                .grad_x = to_x.view,
                                                .accumulate = add,
                                                .scale = static_cast<float>(kScale)});
        h.ops.experts_backward_weight(h.stream, {.rows = rows.args,
                                                 .grad_out = grad_d.view,
                                                 .x = x_d.view,
                                                 .grad_weight = weights_in(to_weight.view, out, in),
                                                 .grad_bias = {},
                                                 .accumulate = false,
                                                 .scale = static_cast<float>(kScale)});
        Vector exact = add ? before_out : Vector(before_out.size()), exact_x = add ? before_x : Vector(before_x.size()),
               exact_weight(weight.size());
        int64_t row = 0;
        for (int64_t e = 0; e < experts; ++e) {
          for (const int64_t end = row + rows_of[static_cast<size_t>(e)]; row < end; ++row) {
            for (int64_t n = 0; n < out; ++n) {
              for (int64_t k = 0; k < in; ++k) {
                const auto at = static_cast<size_t>((e * out + n) * in + k), in_x = static_cast<size_t>(row * in + k),
                           in_out = static_cast<size_t>(row * out + n);
                exact[in_out] += kScale * x[in_x] * weight[at];
                exact_x[in_x] += kScale * grad[in_out] * weight[at];
                exact_weight[at] += kScale * grad[in_out] * x[in_x];
              }
            }
          }
        }
        const auto expect_near = [&](const Vector& found, const Vector& expected, bool rounded, const char* what) {
          double most = 0, worst = 0;
          for (size_t i = 0; i < expected.size(); ++i) {
            most = std::max(most, std::fabs(expected[i]));
            worst = std::max(worst, std::fabs(found[i] - expected[i]));
          }
          EXPECT_LE(worst, (rounded && dtype == DType::bf16 ? 4e-3 : 2e-5) * most)
              << what << " " << dtype_name(dtype) << " " << in << " to " << out << (add ? ", added" : "");
        };
        expect_near(rows.read(h, to), exact, true, "out");
        expect_near(rows.read(h, to_x), exact_x, true, "grad_x");
        expect_near(h.read(to_weight), exact_weight, false, "grad_weight");
      }
    }
  }
}

// In `in` and `out`, weights and their gradients are listed by row.
inline OpRun run(Harness& h, const ExpertsGatedCase& c, uint64_t seed) {
  h.start(seed);
  OpRun r;
  const GivenRows rows(h, c.rows, c.before);
  const int64_t pairs = rows.begin.back() + 2;  // of other experts, before and after
  r.in["gate_up"] = h.random(rows.count * parts_of(c.gate.activation) * c.size, c.dtype, 3.0);
  r.in["grad_act"] = h.random(rows.count * c.size, c.dtype);
  r.in["grad_y"] = h.random(rows.count * c.hidden, c.dtype);
  r.in["weights"] = h.random(rows.count, DType::f32);
  if (c.bias) r.in["bias"] = h.random(rows.args.experts * c.hidden, c.dtype);
  std::vector<int32_t> pair_of_row(static_cast<size_t>(pairs));
  Vector weights_by_pair(static_cast<size_t>(pairs), std::nan(""));
  for (int64_t row = 0; row < pairs; ++row) {
    const int32_t pair = pair_of_row[static_cast<size_t>(row)] = static_cast<int32_t>(pairs - 1 - row);
    if (row >= c.before && row < rows.begin.back())
      weights_by_pair[static_cast<size_t>(pair)] = r.in["weights"][static_cast<size_t>(row - c.before)];
  }
  const Buffer pair_of_row_d = h.upload(pair_of_row);
  const Tensor gate_up = rows.filled(h, c.dtype, parts_of(c.gate.activation) * c.size, r.in["gate_up"]);
  const Tensor grad_act = rows.filled(h, c.dtype, c.size, r.in["grad_act"]);
  const Tensor grad_y = rows.filled(h, c.dtype, c.hidden, r.in["grad_y"]);
  const Tensor bias = c.bias ? h.filled(c.dtype, rows.args.experts, c.hidden, r.in["bias"], 1) : Tensor{};
  const Tensor weights = h.filled(DType::f32, 1, pairs, weights_by_pair);
  const Tensor grad_weights = h.poisoned(DType::f32, 1, pairs);
  const Tensor out = h.poisoned(c.dtype, rows.args.most, c.size);
  h.launch(r.seconds["forward"], [&] {
    h.ops.experts_gated(h.stream, {.rows = rows.args, .gate_up = gate_up.view, .out = out.view, .gate = c.gate});
  });
  h.launch(r.seconds["backward"], [&] {
    h.ops.experts_gated_backward(h.stream, {.rows = rows.args,
                                            .pair_of_row = pointer<int32_t>(pair_of_row_d),
                                            .weights = weights.view.as<float>(),
                                            .gate_up = gate_up.view,
                                            .grad_act = grad_act.view,
                                            .grad_y = grad_y.view,
                                            .bias = weights_in(bias.view, 1, c.hidden),
                                            .gate = c.gate,
                                            .grad_weights = grad_weights.view.as<float>()});
  });
  r.out["out"] = rows.read(h, out);
  r.out["grad_gate_up"] = rows.read(h, gate_up);
  r.out["weighted_act"] = rows.read(h, grad_act);
  r.out["weighted_y"] = rows.read(h, grad_y);
  if (!c.bias) r.exact.insert("weighted_y");
  const Vector by_pair = h.read(grad_weights);
  for (int64_t row = 0; row < pairs; ++row) {
    const double value = by_pair[static_cast<size_t>(pairs - 1 - row)];
    if (row >= c.before && row < rows.begin.back()) {
      r.out["grad_weights"].push_back(value);
    } else {
      EXPECT_TRUE(std::isnan(value)) << "a pair of another group was written";
    }
  }
  return r;
}

}  // namespace megatrain::testing
