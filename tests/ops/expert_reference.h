// MoE ops in float64, written from their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/ops/run_expert_cases.h"

namespace megatrain::testing {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline double activated(Activation activation, double gate) {
  switch (activation) {
    case Activation::silu: return gate * sigmoid(gate);
    case Activation::gelu_tanh:
      return 0.5 * gate * (1.0 + std::tanh(std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate)));
    case Activation::gelu_sigmoid: return gate * sigmoid(1.702 * gate);
    case Activation::relu_squared: return gate > 0 ? gate * gate : 0;
  }
  return 0;
}

inline double gated(const Gate& how, double gate, double up) {
  if (!has_gate(how.activation)) return activated(how.activation, gate);
  const double limit = how.limit > 0 ? static_cast<double>(how.limit) : 1e30;
  return activated(how.activation, std::min(gate, limit)) *
         (std::clamp(up, -limit, limit) + static_cast<double>(how.up_offset));
}

// The experts that a row of scores selects.
inline std::vector<int64_t> best_of(const Vector& scores, int64_t choices) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(choices));
  return order;
}

// "experts" in `in` fixes the choice, so that it does not change in finite differences; only weights are computed.
inline Values reference(const RouteCase& c, const Values& in) {
  Values out{{"choice_counts", Vector(static_cast<size_t>(c.choices * c.experts), 2)},
             {"probability", Vector(static_cast<size_t>(c.experts), 0.25)},
             {"squared_lse", {0.5}},
             {"tokens", {7}}};
  for (int64_t t = 0; t < c.tokens; ++t) {
    const double* row = in.at("logits").data() + t * c.experts;
    Vector scores(row, row + c.experts);
    for (int64_t e = 0; c.bias && e < c.experts; ++e) scores[e] = sigmoid(row[e]) + in.at("bias")[e];
    if (c.groups > 1) {
      const int64_t size = c.experts / c.groups;
      Vector sums;
      for (int64_t g = 0; g < c.groups; ++g) {
        Vector of(scores.begin() + g * size, scores.begin() + (g + 1) * size);
        std::sort(of.rbegin(), of.rend());
        sums.push_back(of[0] + of[1]);
      }
      const auto kept = best_of(sums, c.kept_groups);
      for (int64_t e = 0; e < c.experts; ++e) {
        if (std::ranges::count(kept, e / size) == 0) scores[e] = -std::numeric_limits<double>::infinity();
      }
    }
    for (const int64_t expert : best_of(scores, c.choices)) out["experts"].push_back(static_cast<double>(expert));

    const auto expert_of = [&](int64_t j) { return static_cast<int64_t>(in.at("experts")[t * c.choices + j]); };
    double all = 0, chosen = 0, sigmoids = 1e-20;
    for (int64_t e = 0; e < c.experts; ++e) all += std::exp(row[e]);
    for (int64_t j = 0; j < c.choices; ++j) {
      chosen += std::exp(row[expert_of(j)]);
      sigmoids += sigmoid(row[expert_of(j)]);
    }
    for (int64_t j = 0; j < c.choices; ++j) {
      const double logit = row[expert_of(j)];
      const double weight = c.score == RouterScore::softmax_of_chosen ? std::exp(logit) / chosen
                            : c.score == RouterScore::softmax_of_all  ? std::exp(logit) / all
                                                                      : sigmoid(logit) / sigmoids;
      out["weights"].push_back(weight * static_cast<double>(c.scale));
    }
    if (in.at("counted")[t] == 0) continue;
    for (int64_t j = 0; j < c.choices; ++j) ++out["choice_counts"][j * c.experts + expert_of(j)];
    for (int64_t e = 0; e < c.experts; ++e) out["probability"][e] += std::exp(row[e]) / all;
    out["squared_lse"][0] += std::log(all) * std::log(all);
    ++out["tokens"][0];
  }
  return out;
}

// The function that route_backward differentiates.
inline double objective(const RouteCase& c, const Values& in) {
  const Values out = reference(c, in);
  double sum = 0;
  for (const char* name : {"weights", "probability", "squared_lse"}) {
    const auto grad = in.find(std::string("grad_") + name);
    if (grad != in.end())
      sum += std::inner_product(grad->second.begin(), grad->second.end(), out.at(name).begin(), 0.0);
  }
  return sum;
}

inline Values reference(const ExpertRowsCase& c, const Values& in) {
  Values out;
  const Vector& experts = in.at("experts");
  const int64_t last = c.count > 0 ? c.first + c.count : c.experts;
  std::vector<int64_t> order(experts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return experts[a] < experts[b]; });
  out["pair_of_row"] = Vector(order.begin(), order.end());
  out["row_of_pair"] = Vector(experts.size());
  for (size_t row = 0; row < order.size(); ++row) out["row_of_pair"][order[row]] = static_cast<double>(row);
  for (int64_t e = 0; e <= c.experts; ++e) {
    out["begin"].push_back(static_cast<double>(
        std::count_if(experts.begin(), experts.end(), [&](double x) { return x < static_cast<double>(e); })));
  }
  out["alone"] = Vector(static_cast<size_t>(c.tokens * c.hidden));
  out["sum"] = out["descending"] = in.at("from");
  int64_t row = 0;  // in the group's buffer
  for (const int64_t pair : order) {
    if (experts[pair] < static_cast<double>(c.first) || experts[pair] >= static_cast<double>(last)) continue;
    const int64_t token = pair / c.choices;
    for (int64_t i = 0; i < c.hidden; ++i) {
      const double x = in.at("rows")[row * c.hidden + i], weighted = in.at("weights")[pair] * x;
      out["gathered"].push_back(in.at("x")[token * c.hidden + i]);
      out["alone"][token * c.hidden + i] += weighted;
      out["sum"][token * c.hidden + i] += weighted;
      out["descending"][token * c.hidden + i] += x;
    }
    ++row;
  }
  return out;
}

// Calls body(row, expert) for every row of the group.
template <class Body>
void for_given_rows(const std::vector<int32_t>& rows, const Body& body) {
  int64_t row = 0;
  for (int64_t expert = 0; expert < std::ssize(rows); ++expert) {
    for (int32_t i = 0; i < rows[static_cast<size_t>(expert)]; ++i) body(row++, expert);
  }
}

inline Values reference(const ExpertsLinearCase& c, const Values& in) {
  const Vector &x = in.at("x"), &weight = in.at("weight");
  Vector out;
  for_given_rows(c.rows, [&](int64_t row, int64_t expert) {
    for (int64_t n = expert * c.out; n < (expert + 1) * c.out; ++n) {
      double sum = c.bias ? in.at("bias")[n] : 0;
      for (int64_t k = 0; k < c.in; ++k) sum += x[row * c.in + k] * weight[n * c.in + k];
      out.push_back(sum);
    }
  });
  return {{"out", out}};
}

inline Values reference(const ExpertsGatedCase& c, const Values& in) {
  const Vector &gate_up = in.at("gate_up"), &weights = in.at("weights");
  Values out{{"out", {}}, {"weighted_act", {}}, {"weighted_y", {}}};
  for_given_rows(c.rows, [&](int64_t row, int64_t) {
    for (int64_t i = 0; i < c.size; ++i) {
      const bool gate = has_gate(c.gate.activation);
      const double up = gate ? gate_up[(row * 2 + 1) * c.size + i] : 1;
      out["out"].push_back(gated(c.gate, gate_up[row * (gate ? 2 : 1) * c.size + i], up));
      out["weighted_act"].push_back(weights[row] * out["out"].back());
    }
    for (int64_t i = 0; i < c.hidden; ++i)
      out["weighted_y"].push_back(in.at("grad_y")[row * c.hidden + i] * (c.bias ? weights[row] : 1.0));
  });
  return out;
}

// The function that experts_gated_backward differentiates: weight * (<grad_act, out> + <grad_y, bias>), summed over
// rows.
inline double objective(const ExpertsGatedCase& c, const Values& in) {
  const Vector act = reference(c, in).at("out");
  double sum = 0;
  for_given_rows(c.rows, [&](int64_t row, int64_t expert) {
    double value = 0;
    for (int64_t i = row * c.size; i < (row + 1) * c.size; ++i) value += in.at("grad_act")[i] * act[i];
    for (int64_t i = 0; c.bias && i < c.hidden; ++i)
      value += in.at("grad_y")[row * c.hidden + i] * in.at("bias")[expert * c.hidden + i];
    sum += in.at("weights")[row] * value;
  });
  return sum;
}

}  // namespace megatrain::testing
