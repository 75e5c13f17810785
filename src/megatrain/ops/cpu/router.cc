#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "megatrain/ops/cpu/exp.h"
#include "megatrain/ops/cpu/kernels.h"
#include "megatrain/ops/cpu/rows.h"
#include "megatrain/ops/experts.h"

namespace megatrain::cpu {
namespace {

// Orders experts by score, equal scores by index, so no two are equal. NaN has a place in the order too, and -0 equals
// 0.
int64_t rank(float score, int64_t expert) {
  return int64_t{flip_negative(std::bit_cast<int32_t>(score + 0.0f))} * (int64_t{1} << 31) - expert;
}

void choose(const float* scores, int64_t count, int64_t choices, int32_t* chosen) {
  int64_t last = std::numeric_limits<int64_t>::max();
  for (int64_t j = 0; j < choices; ++j) {
    int64_t best = std::numeric_limits<int64_t>::min();
    for (int64_t expert = 0; expert < count; ++expert) {
      const int64_t at = rank(scores[expert], expert);
      if (at >= last || at <= best) continue;
      best = at;
      chosen[j] = static_cast<int32_t>(expert);
    }
    last = best;
  }
}

// The sum of a group's two largest scores.
float group_score(const float* scores, int64_t count) {
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (int64_t i = 0; i < count; ++i) {
    if (scores[i] > first)
      second = std::exchange(first, scores[i]);
    else if (scores[i] > second)
      second = scores[i];
  }
  return first + second;
}

// Puts the scores of experts that cannot be chosen below all others.
void keep_groups(const Route& args, float* scores) {
  const int64_t size = args.logits.cols / args.groups;
  std::vector<float> sums;
  for (int64_t group = 0; group < args.groups; ++group) sums.push_back(group_score(scores + group * size, size));
  std::vector<int32_t> kept(static_cast<size_t>(args.kept_groups));
  choose(sums.data(), args.groups, args.kept_groups, kept.data());
  for (int64_t group = 0; group < args.groups; ++group) {
    if (std::ranges::count(kept, static_cast<int32_t>(group)) > 0) continue;
    std::fill_n(scores + group * size, size, -std::numeric_limits<float>::infinity());
  }
}

// Softmax of a row is terms / sum.
struct Softmax {
  float maximum;
  double sum;
  double lse() const { return static_cast<double>(maximum) + std::log(sum); }
};

Softmax softmax(const float* logits, int64_t count, float* terms) {
  const float maximum = largest_of(logits, count);
  for (int64_t i = 0; i < count; ++i) terms[i] = exp_f32(logits[i] - maximum);
  return {maximum, sum_of(count, [&](int64_t i) { return static_cast<double>(terms[i]); })};
}

// A token's weights, before scaling, are terms / divisor. Returns the divisor.
double chosen_terms(RouterScore score, const float* logits, int64_t count, const int32_t* chosen, int64_t choices,
                    float* terms) {
  for (int64_t j = 0; j < choices; ++j) terms[j] = logits[chosen[j]];
  if (score == RouterScore::softmax_of_chosen) return softmax(terms, choices, terms).sum;
  if (score == RouterScore::softmax_of_all) {
    const float maximum = largest_of(logits, count);
    for (int64_t j = 0; j < choices; ++j) terms[j] = exp_f32(terms[j] - maximum);
    return sum_of(count, [&](int64_t i) { return static_cast<double>(exp_f32(logits[i] - maximum)); });
  }
  for (int64_t j = 0; j < choices; ++j) terms[j] = sigmoid(terms[j]);
  return sum_of(choices, [&](int64_t j) { return static_cast<double>(terms[j]); }) + 1e-20;
}

void check_router(const View& logits, int64_t choices) {
  ensure(logits.dtype == DType::f32, "a router's logits are fp32");
  ensure(choices > 0 && choices <= logits.cols, "a token chooses distinct experts");
}

void check_groups(const Route& args) {
  if (args.groups == 1) return;
  ensure(!args.choice_bias.empty(), "groups are of scores with a bias");
  ensure(args.logits.cols % args.groups == 0 && args.logits.cols / args.groups >= 2 &&
             args.kept_groups <= args.groups && args.kept_groups * (args.logits.cols / args.groups) >= args.choices,
         "groups are of at least two experts, and those that are kept have enough");
}

bool counts(const int32_t* counted, int64_t token) { return !counted || counted[token] != 0; }

}  // namespace

void route(const Context& context, const Route& args) {
  check_router(args.logits, args.choices);
  ensure(args.choice_bias.empty() || args.score == RouterScore::sigmoid, "a choice's bias is of sigmoid scores");
  check_groups(args);
  const int64_t count = args.logits.cols;
  for_rows(context.team, args.logits.rows, count, [&](int64_t token) {
    thread_local std::vector<float> score_scratch, term_scratch;
    const float* logits = element<float>(args.logits, token, 0);
    const float* scores = logits;
    if (!args.choice_bias.empty()) {
      float* biased = grown(score_scratch, count);
      const float* bias = args.choice_bias.as<float>();
      for (int64_t i = 0; i < count; ++i) biased[i] = sigmoid(logits[i]) + bias[i];
      if (args.groups > 1) keep_groups(args, biased);
      scores = biased;
    }
    int32_t* chosen = args.experts + token * args.choices;
    choose(scores, count, args.choices, chosen);
    float* terms = grown(term_scratch, args.choices);
    const double divisor = chosen_terms(args.score, logits, count, chosen, args.choices, terms);
    const float factor = static_cast<float>(static_cast<double>(args.scale) / divisor);
    for (int64_t j = 0; j < args.choices; ++j) args.weights[token * args.choices + j] = terms[j] * factor;
  });
}

// Let w = terms / divisor, and g the gradient with respect to the scaled weights. The gradient of the logits is, for a
// softmax, scale w (g - <w, g>), where g is 0 for experts that were not chosen. For sigmoids over their sum, it is the
// same times 1 - sigmoid.
void route_backward(const Context& context, const RouteBackward& args) {
  check_router(args.logits, args.choices);
  check_dtype(args.grad_logits);
  const int64_t count = args.logits.cols;
  const bool of_all = args.score == RouterScore::softmax_of_all;
  for_rows(context.team, args.logits.rows, count, [&](int64_t token) {
    thread_local std::vector<float> term_scratch, all_scratch, grad_scratch;
    const float* logits = element<float>(args.logits, token, 0);
    const int32_t* chosen = args.experts + token * args.choices;
    const float* grad_weights = args.grad_weights + token * args.choices;
    float* terms = grown(term_scratch, args.choices);
    const double divisor = chosen_terms(args.score, logits, count, chosen, args.choices, terms);
    const double mean =
        sum_of(args.choices, [&](int64_t j) { return static_cast<double>(terms[j]) * grad_weights[j]; }) / divisor;
    const float factor = static_cast<float>(static_cast<double>(args.scale) / divisor);
    float* grad = grown(grad_scratch, count);
    std::fill(grad, grad + count, 0.0f);

    const bool losses = counts(args.counted, token) && (!args.grad_probability.empty() || args.grad_squared_lse != 0);
    if (of_all || losses) {
      float* all = grown(all_scratch, count);
      const Softmax softmax_of_all = softmax(logits, count, all);
      double offset = 0;  // added to the gradient of every expert's probability
      if (of_all) offset -= mean * static_cast<double>(args.scale);
      if (losses) offset += 2 * softmax_of_all.lse() * static_cast<double>(args.grad_squared_lse);
      if (losses && !args.grad_probability.empty()) {
        const float* slope = args.grad_probability.as<float>();
        offset -= sum_of(count, [&](int64_t i) { return static_cast<double>(all[i]) * slope[i]; }) / softmax_of_all.sum;
        std::copy(slope, slope + count, grad);
      }
      const float by = static_cast<float>(1.0 / softmax_of_all.sum);
      for (int64_t i = 0; i < count; ++i)
        grad[i] = all[i] * by * static_cast<float>(static_cast<double>(grad[i]) + offset);
    }
    for (int64_t j = 0; j < args.choices; ++j) {
      const float past_mean = static_cast<float>(static_cast<double>(grad_weights[j]) - (of_all ? 0.0 : mean));
      const float slope = args.score == RouterScore::sigmoid ? sigmoid(-logits[chosen[j]]) : 1.0f;
      grad[chosen[j]] += terms[j] * factor * past_mean * slope;
    }
    narrow(grad, args.grad_logits, token, 0, count);
  });
}

void sort_by_expert(const Context&, const SortByExpert& args) {
  thread_local std::vector<int32_t> next;
  next.assign(static_cast<size_t>(args.count), 0);
  for (int64_t pair = 0; pair < args.pairs; ++pair) {
    ensure(args.experts[pair] >= 0 && args.experts[pair] < args.count, "a pair's expert is one of the router's");
    ++next[static_cast<size_t>(args.experts[pair])];
  }
  args.begin[0] = 0;
  for (int64_t expert = 0; expert < args.count; ++expert)
    args.begin[expert + 1] = args.begin[expert] + next[static_cast<size_t>(expert)];
  std::copy(args.begin, args.begin + args.count, next.begin());
  for (int64_t pair = 0; pair < args.pairs; ++pair) {
    const int32_t row = next[static_cast<size_t>(args.experts[pair])]++;
    args.pair_of_row[row] = static_cast<int32_t>(pair);
    args.row_of_pair[pair] = row;
  }
}

void count_experts(const Context&, const CountExperts& args) {
  check_router(args.logits, args.choices);
  thread_local std::vector<float> scratch;
  const int64_t count = args.logits.cols;
  float* terms = grown(scratch, count);
  for (int64_t token = 0; token < args.logits.rows; ++token) {
    if (!counts(args.counted, token)) continue;
    for (int64_t j = 0; j < args.choices; ++j) ++args.choice_counts[j * count + args.experts[token * args.choices + j]];
    const Softmax probability = softmax(element<float>(args.logits, token, 0), count, terms);
    for (int64_t i = 0; i < count; ++i) args.probability[i] += static_cast<double>(terms[i]) / probability.sum;
    *args.squared_lse += probability.lse() * probability.lse();
    ++*args.tokens;
  }
}

void balance_slopes(const Context&, const BalanceSlopes& args) {
  for (int64_t expert = 0; expert < args.experts; ++expert) {
    int64_t chosen = 0;
    for (int64_t layer = 0; layer < args.layers; ++layer) {
      const int64_t* counts = args.choice_counts + layer * args.stride + expert;
      for (int64_t j = 0; j < args.choices; ++j) chosen += counts[j * args.experts];
    }
    args.slopes[expert] = static_cast<float>(args.factor * static_cast<double>(chosen));
  }
}

}  // namespace megatrain::cpu
