// Properties that the MoE ops share with other ops, and the layer that they form together.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/cpu_fixture.h"
#include "tests/ops/expert_layer.h"
#include "tests/ops/expert_reference.h"

namespace megatrain::testing {
namespace {

TEST(Experts, BitsDoNotDependOnHowManyAreComputedAtATime) {
  CpuFixture cpu({.threads = 2});
  check_groups_of_experts(cpu.harness);
}

// <grad_out, out> of the layer in float64, with the experts in `chosen` for each token.
double layer_objective(const ExpertLayer& c, const std::vector<std::vector<int64_t>>& chosen, const Values& in) {
  double value = 0;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const double* logits = in.at("logits").data() + t * c.experts;
    double sum = 0;
    for (const int64_t e : chosen[t]) sum += std::exp(logits[e]);
    for (const int64_t e : chosen[t]) {
      const auto up = [&](int64_t row) {
        double dot = in.at("up_bias")[e * 2 * c.size + row];
        for (int64_t i = 0; i < c.hidden; ++i)
          dot += in.at("up")[(e * 2 * c.size + row) * c.hidden + i] * in.at("x")[t * c.hidden + i];
        return dot;
      };
      Vector act;
      for (int64_t f = 0; f < c.size; ++f) act.push_back(gated(c.gate, up(f), up(c.size + f)));
      for (int64_t n = 0; n < c.hidden; ++n) {
        double y = in.at("down_bias")[e * c.hidden + n];
        for (int64_t f = 0; f < c.size; ++f) y += in.at("down")[(e * c.hidden + n) * c.size + f] * act[f];
        value += in.at("grad_out")[t * c.hidden + n] * std::exp(logits[e]) / sum * y;
      }
    }
  }
  return value;
}

TEST(Experts, ALayerMadeOfThemHasTheGradientsOfItsDefinition) {
  CpuFixture cpu({.threads = 2});
  for (const ExpertLayer& c : {ExpertLayer{DType::f32, 9, 6, 5, 4, 2},
                               ExpertLayer{DType::f32, 12, 5, 7, 6, 4, {Activation::gelu_sigmoid, 1.7f, 1.0f}, true},
                               ExpertLayer{DType::f32, 8, 4, 3, 9, 8, {Activation::silu, 0, 0}, true}}) {
    const OpRun r = run(cpu.harness, c, 2, 17);
    std::vector<std::vector<int64_t>> chosen;
    for (int64_t t = 0; t < c.tokens; ++t) {
      const auto row = r.in.at("logits").begin() + t * c.experts;
      chosen.push_back(best_of(Vector(row, row + c.experts), c.choices));
    }
    EXPECT_NEAR(std::inner_product(r.out.at("out").begin(), r.out.at("out").end(), r.in.at("grad_out").begin(), 0.0),
                layer_objective(c, chosen, r.in), 1e-4);
    for (const auto& [grad_name, grad] : r.out) {
      if (!grad_name.starts_with("grad_")) continue;
      const std::string name = grad_name.substr(5);
      Values in = r.in;
      for (size_t i = 0; i < grad.size(); ++i) {
        const auto moved = [&](double step) {
          in[name][i] = r.in.at(name)[i] + step;
          return layer_objective(c, chosen, in);
        };
        const double slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        in[name][i] = r.in.at(name)[i];
        ASSERT_NEAR(grad[i], slope, 1e-4) << grad_name << "[" << i << "]";
      }
    }
  }
}

TEST(Experts, ProductsHaveTheBitsOfLinearOpsOnTheSameRows) {
  CpuFixture cpu({.threads = 2});
  Harness& h = cpu.harness;
  for (const ExpertsLinearCase& c : kExpertsLinearCases) {
    const OpRun together = run(h, c, 13);
    int64_t begin = 0;
    for (size_t expert = 0; expert < c.rows.size(); ++expert) {
      const int64_t rows = c.rows[expert];
      // of each expert in `in`, or of each row
      const auto expert_part = [&](const char* name, int64_t size) {
        const auto first = together.in.at(name).begin() + static_cast<int64_t>(expert) * size;
        return Vector(first, first + size);
      };
      const auto row_part = [&](const Vector& values, int64_t cols) {
        return Vector(values.begin() + begin * cols, values.begin() + (begin + rows) * cols);
      };
      const auto target = [&](const char* before, int64_t n, int64_t k) {
        return c.accumulate ? h.filled(DType::f32, n, k, expert_part(before, n * k)) : h.poisoned(DType::f32, n, k);
      };
      const Tensor x = h.filled(c.dtype, rows, c.in, row_part(together.in.at("x"), c.in));
      const Tensor grad_out = h.filled(c.dtype, rows, c.out, row_part(together.in.at("grad_out"), c.out));
      const Tensor weight = h.filled(c.dtype, c.out, c.in, expert_part("weight", c.out * c.in));
      const Tensor bias = c.bias ? h.filled(c.dtype, 1, c.out, expert_part("bias", c.out)) : Tensor{};
      const Tensor out = h.poisoned(c.dtype, rows, c.out), grad_x = h.poisoned(c.dtype, rows, c.in);
      const Tensor grad_weight = target("before_weight", c.out, c.in);
      const Tensor grad_bias = c.bias ? target("before_bias", 1, c.out) : Tensor{};
      h.ops.linear_forward(h.stream, {.x = x.view, .weight = weight.view, .bias = bias.view, .out = out.view});
      h.ops.linear_backward_input(h.stream, {.grad_out = grad_out.view, .weight = weight.view, .grad_x = grad_x.view});
      h.ops.linear_backward_weight(h.stream, {.grad_out = grad_out.view,
                                              .x = x.view,
                                              .grad_weight = grad_weight.view,
                                              .grad_bias = grad_bias.view,
                                              .accumulate = c.accumulate});
      const auto of_expert = [&](const char* name, int64_t size) {
        const auto first = together.out.at(name).begin() + static_cast<int64_t>(expert) * size;
        return Vector(first, first + size);
      };
      EXPECT_EQ(h.read(out), row_part(together.out.at("out"), c.out)) << name_of(c) << " expert " << expert;
      EXPECT_EQ(h.read(grad_x), row_part(together.out.at("grad_x"), c.in)) << name_of(c) << " expert " << expert;
      EXPECT_EQ(h.read(grad_weight), of_expert("grad_weight", c.out * c.in)) << name_of(c) << " expert " << expert;
      if (c.bias) {
        EXPECT_EQ(h.read(grad_bias), of_expert("grad_bias", c.out)) << name_of(c) << " expert " << expert;
      }
      begin += rows;
    }
  }
}

TEST(Experts, ScaledAndAddedProductsMatchFloat64) {
  CpuFixture cpu({.threads = 2});
  check_scaled_products(cpu.harness);
}

TEST(Experts, GatedActivationsWithoutLimitsHaveTheBitsOfTheOthers) {
  CpuFixture cpu({.threads = 2});
  Harness& h = cpu.harness;
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu_sigmoid}) {
    const ExpertsGatedCase c{DType::bf16, {5, 0, 8}, 600, 3, {activation}};
    const OpRun r = run(h, c, 3);
    const Tensor gate_up = h.filled(c.dtype, 13, 2 * c.size, r.in.at("gate_up")), out = h.poisoned(c.dtype, 13, c.size);
    h.ops.gated_forward(h.stream, {.gate_up = gate_up.view, .out = out.view, .activation = activation});
    EXPECT_EQ(h.read(out), r.out.at("out"));
  }
}

// Each addition rounds to fp32, so the bits reveal its order.
TEST(Experts, ATokensRowsAreAddedInOrderOfTheirExperts) {
  CpuFixture cpu({.threads = 2});
  const ExpertRowsCase c{DType::f32, 40, 30, 12, 8, 2, 9};
  const OpRun r = run(cpu.harness, c, 19);
  const Vector& experts = r.in.at("experts");
  int differ = 0;
  for (int64_t t = 0; t < c.tokens; ++t) {
    std::vector<int64_t> pairs;
    for (int64_t pair = t * c.choices; pair < (t + 1) * c.choices; ++pair) {
      if (experts[pair] >= 2 && experts[pair] < 11) pairs.push_back(pair);
    }
    std::sort(pairs.begin(), pairs.end(), [&](int64_t a, int64_t b) { return experts[a] < experts[b]; });
    const double before = r.out.at("begin")[2];
    for (int64_t i = 0; i < c.hidden; ++i) {
      const auto row = [&](int64_t pair) {
        const auto at = static_cast<int64_t>(r.out.at("row_of_pair")[pair] - before);
        return static_cast<float>(r.in.at("rows")[at * c.hidden + i]);
      };
      float up = static_cast<float>(r.in.at("from")[t * c.hidden + i]), down = up, other = up;
      for (const int64_t pair : pairs) up += static_cast<float>(r.in.at("weights")[pair]) * row(pair);
      for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) down += row(*pair);
      for (const int64_t pair : pairs) other += row(pair);
      ASSERT_EQ(r.out.at("sum")[t * c.hidden + i], up);
      ASSERT_EQ(r.out.at("descending")[t * c.hidden + i], down);
      differ += down != other;
    }
  }
  EXPECT_GT(differ, 0);
}

// The experts chosen for rows of logits.
std::vector<int32_t> routed(Harness& h, const Vector& logits, int64_t experts, int64_t choices, RouterScore score) {
  const int64_t tokens = std::ssize(logits) / experts;
  const Tensor logits_d = h.filled(DType::f32, tokens, experts, logits);
  const Buffer chosen = h.upload(std::vector<int32_t>(static_cast<size_t>(tokens * choices), -1));
  const Tensor weights = h.poisoned(DType::f32, tokens, choices);
  const Tensor bias = h.filled(DType::f32, 1, experts, Vector(static_cast<size_t>(experts)));
  h.ops.route(h.stream, {.logits = logits_d.view,
                         .choice_bias = score == RouterScore::sigmoid ? bias.view : View{},
                         .score = score,
                         .choices = choices,
                         .experts = pointer<int32_t>(chosen),
                         .weights = weights.view.as<float>()});
  return h.download_as<int32_t>(chosen, tokens * choices);
}

constexpr RouterScore kScores[] = {RouterScore::softmax_of_chosen, RouterScore::softmax_of_all, RouterScore::sigmoid};

TEST(Router, OfEqualLogitsTheLowerExpertComesFirst) {
  CpuFixture cpu({.threads = 1});
  for (const RouterScore score : kScores) {
    EXPECT_EQ(routed(cpu.harness, {1, 3, 3, 1, 3, 2}, 6, 4, score), (std::vector<int32_t>{1, 2, 4, 5}));
    EXPECT_EQ(routed(cpu.harness, {-1, -0.0, 0.0, -0.0, 0.0, -2}, 6, 3, score), (std::vector<int32_t>{1, 2, 3}));
    EXPECT_EQ(routed(cpu.harness, Vector(6, -4.0), 6, 6, score), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  }
}

TEST(Router, ChoosesDistinctExpertsOfAnyLogits) {
  CpuFixture cpu({.threads = 1});
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  const Vector logits = {nan, nan,  nan,  nan,  nan,        nan,        1,          nan,        -nan,       2,
                         nan, 3,    -nan, -nan, -nan,       -nan,       -nan,       -nan,       kInfinity,  -kInfinity,
                         nan, -nan, 0,    0,    -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity};
  for (const RouterScore score : kScores) {
    for (const int64_t choices : {1, 2, 4, 6}) {
      const std::vector<int32_t> chosen = routed(cpu.harness, logits, 6, choices, score);
      for (size_t token = 0; token < 5; ++token) {
        const auto first = chosen.begin() + static_cast<std::ptrdiff_t>(token) * choices;
        const std::set<int32_t> distinct(first, first + choices);
        EXPECT_EQ(std::ssize(distinct), choices) << "token " << token;
        EXPECT_GE(*distinct.begin(), 0);
        EXPECT_LT(*distinct.rbegin(), 6);
      }
    }
  }
}

TEST(Router, SlopesOfTheLossThatBalancesAreCountsTimesAFactorRoundedOnce) {
  CpuFixture cpu({.threads = 2});
  check_balance_slopes(cpu.harness);
}

TEST(Router, CountsTheSameBitsWhenTokensAreSplitOverCalls) {
  CpuFixture cpu({.threads = 2});
  Harness& h = cpu.harness;
  h.start(3);
  constexpr int64_t kTokens = 60, kExperts = 10, kChoices = 2;
  const Tensor logits = h.filled(DType::f32, kTokens, kExperts, h.random(kTokens * kExperts, DType::f32));
  const Buffer experts = h.upload(random_choices(h, kTokens, kExperts, kChoices));
  const auto counted = [&](const std::vector<int64_t>& cuts) {
    const Buffer counts = h.upload(std::vector<int64_t>(kChoices * kExperts)),
                 tokens = h.upload(std::vector<int64_t>(1));
    const Buffer probability = h.upload(std::vector<double>(kExperts)), squared = h.upload(std::vector<double>(1));
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      h.ops.count_experts(h.stream, {.experts = pointer<int32_t>(experts) + cuts[i] * kChoices,
                                     .logits = logits.view.slice_rows(cuts[i], cuts[i + 1] - cuts[i]),
                                     .choices = kChoices,
                                     .choice_counts = pointer<int64_t>(counts),
                                     .probability = pointer<double>(probability),
                                     .squared_lse = pointer<double>(squared),
                                     .tokens = pointer<int64_t>(tokens)});
    }
    return std::tuple{h.download_as<int64_t>(counts, kChoices * kExperts), h.download_as<int64_t>(tokens, 1),
                      h.download_as<double>(probability, kExperts), h.download_as<double>(squared, 1)};
  };
  EXPECT_EQ(counted({0, kTokens}), counted({0, 1, 17, 59, kTokens}));
}

}  // namespace
}  // namespace megatrain::testing
