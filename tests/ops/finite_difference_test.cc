// Forward compared with a float64 reference; backward compared with central differences of that reference.
#include <gtest/gtest.h>

#include "tests/ops/cpu_fixture.h"
#include "tests/ops/reference.h"

namespace megatrain::testing {
namespace {

double dot(const Vector& a, const Vector& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

double largest(const Vector& values) {
  double top = 0;
  for (double x : values) top = std::max(top, std::abs(x));
  return top;
}

// The scalar whose gradient the backward ops compute, if reference.h has none for the case: out . grad_out, or the
// scaled sum of losses; plus X . before_X for every gradient that is accumulated.
template <class Case>
double objective(const Case& c, const Values& in) {
  const Values out = reference(c, in);
  double sum = 0;
  if (in.contains("grad_out")) {
    sum = dot(out.at("out"), in.at("grad_out"));
  } else {
    const Vector& loss = out.at("loss");
    const auto weights = in.find("token_scales");
    for (size_t t = 0; t < loss.size(); ++t)
      sum += loss[t] * in.at("scale")[0] * (weights == in.end() ? 1 : weights->second[t]);
  }
  for (const auto& [name, before] : in) {
    if (name.starts_with("before_")) sum += dot(in.at(name.substr(7)), before);
  }
  return sum;
}

template <class Case>
double slope(const Case& c, Values in, const std::string& name, const Vector& direction) {
  constexpr double kStep = 1e-5;
  const Vector at = in.at(name);
  const auto moved = [&](double step) {
    for (size_t i = 0; i < at.size(); ++i) in[name][i] = at[i] + step * direction[i];
    return objective(c, in);
  };
  return (moved(kStep) - moved(-kStep)) / (2 * kStep);
}

template <class Case>
void check_forward(const Case& c, const OpRun& r) {
  const double tolerance = c.dtype == DType::bf16 ? 4e-3 : 2e-6;
  for (const auto& [name, expected] : reference(c, r.in)) {
    const Vector& found = r.out.at(name);
    ASSERT_EQ(found.size(), expected.size()) << name;
    const double bound = tolerance * std::max(largest(expected), 1e-30);
    for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], bound) << name << "[" << i << "]";
  }
}

template <class Case>
void check_backward(const Case& c, const OpRun& r) {
  const double tolerance = c.dtype == DType::bf16 ? 1e-2 : 1e-5;
  constexpr size_t kElementwiseLimit = 250;
  // The scale for a gradient that is zero by symmetry: its noise is as large as the terms that cancel.
  const Vector cause = r.in.contains("grad_out") ? r.in.at("grad_out") : Vector{1e-3};
  for (const auto& [grad_name, grad] : r.out) {
    if (!grad_name.starts_with("grad_")) continue;
    const std::string name = grad_name.substr(5);
    ASSERT_EQ(grad.size(), r.in.at(name).size()) << name;
    for (uint64_t trial = 0; trial < 3; ++trial) {
      Vector direction(grad.size());
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] = static_cast<double>(random_normal_pair(trial, 77, i)[0]);
      }
      const double scale = std::max(std::sqrt(dot(grad, grad)), 0.1 * std::sqrt(dot(cause, cause)));
      ASSERT_NEAR(dot(grad, direction), slope(c, r.in, name, direction), tolerance * scale) << grad_name;
    }
    if (grad.size() > kElementwiseLimit) continue;
    const double scale = std::max(largest(grad), 0.1 * largest(cause));
    for (size_t i = 0; i < grad.size(); ++i) {
      Vector direction(grad.size());
      direction[i] = 1;
      ASSERT_NEAR(grad[i], slope(c, r.in, name, direction), tolerance * scale) << grad_name << "[" << i << "]";
    }
  }
}

template <class Case>
void check_all(const std::vector<Case>& cases) {
  CpuFixture cpu({.threads = 2});
  for (const Case& c : cases) {
    SCOPED_TRACE(name_of(c));
    const OpRun r = run(cpu.harness, c, 11);
    check_forward(c, r);
    check_backward(c, r);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuOps, EmbeddingMatchesTheDefinitionAndItsDifferences) { check_all(kEmbeddingCases); }
TEST(CpuOps, RmsNormMatchesTheDefinitionAndItsDifferences) { check_all(kRmsNormCases); }
TEST(CpuOps, RopeMatchesTheDefinitionAndItsDifferences) { check_all(kRopeCases); }
TEST(CpuOps, LinearMatchesTheDefinitionAndItsDifferences) { check_all(kLinearCases); }
TEST(CpuOps, DoraMatchesTheDefinitionAndItsDifferences) { check_all(kDoraCases); }
TEST(CpuOps, AttentionMatchesTheDefinitionAndItsDifferences) { check_all(kAttentionCases); }
TEST(CpuOps, GatedActivationsMatchTheDefinitionAndItsDifferences) { check_all(kGatedCases); }
TEST(CpuOps, OutputGatesMatchTheDefinitionAndItsDifferences) { check_all(kOutputGateCases); }
TEST(CpuOps, ShortConvolutionsMatchTheDefinitionAndItsDifferences) { check_all(kShortConvCases); }
TEST(CpuOps, DeltaGatesMatchTheDefinitionAndItsDifferences) { check_all(kDeltaGatesCases); }
TEST(CpuOps, DeltaRuleMatchesTheRecurrenceAndItsDifferences) { check_all(kDeltaRuleCases); }
TEST(CpuOps, SsdGatesMatchTheDefinitionAndItsDifferences) { check_all(kSsdGatesCases); }
TEST(CpuOps, SsdMatchesTheRecurrenceAndItsDifferences) { check_all(kSsdCases); }
TEST(CpuOps, GatedNormMatchesTheDefinitionAndItsDifferences) { check_all(kGatedNormCases); }
TEST(CpuOps, RoutingMatchesTheDefinitionAndItsDifferences) { check_all(kRouteCases); }
TEST(CpuOps, RowsOfExpertsMatchTheDefinition) { check_all(kExpertRowsCases); }
TEST(CpuOps, ProductsOfExpertsMatchTheDefinitionAndItsDifferences) { check_all(kExpertsLinearCases); }
TEST(CpuOps, GatedActivationsOfExpertsMatchTheDefinitionAndItsDifferences) { check_all(kExpertsGatedCases); }
TEST(CpuOps, CrossEntropyMatchesTheDefinitionAndItsDifferences) { check_all(kCrossEntropyCases); }

// A row of zeros stays zero, and so does its magnitude's gradient.
TEST(CpuOps, DoraGivesARowOfZerosTheFactorZero) {
  CpuFixture cpu({.threads = 1});
  Harness& h = cpu.harness;
  const Tensor weight = h.filled(DType::f32, 2, 3, {0, 0, 0, 3, 0, 4}), a = h.filled(DType::f32, 1, 3, {1, 2, 3}),
               b = h.filled(DType::f32, 2, 1, {0, 0}), magnitude = h.filled(DType::f32, 1, 2, {0, 10});
  const Tensor factors = h.poisoned(DType::f32, 1, 2), inv_norms = h.poisoned(DType::f32, 1, 2);
  h.ops.dora_factors(h.stream, {.weight = weight.view,
                                .a = a.view,
                                .b = b.view,
                                .magnitude = magnitude.view,
                                .factors = factors.view,
                                .inv_norms = inv_norms.view});
  EXPECT_EQ(h.read(factors), (Vector{0, 2}));
  EXPECT_EQ(h.read(inv_norms), (Vector{0, stored(0.2, DType::f32)}));
}

// 1 + w is not a bf16 number for a small w: sum and product are fp32, and only the result is rounded.
TEST(CpuOps, RmsNormAddsTheOffsetInFp32AndRoundsOnce) {
  CpuFixture cpu({.threads = 1});
  const RmsNormCase c{DType::bf16, 5, 64, 3, 0, false, false, false, 1.0f, true};
  const OpRun r = run(cpu.harness, c, 3);
  const auto at = [](const Vector& values, size_t i) { return static_cast<float>(values[i]); };
  for (size_t i = 0; i < r.out.at("out").size(); ++i) {
    const float inv_rms = at(r.out.at("inv_rms"), i / 64), weight = 1.0f + at(r.in.at("weight"), i % 64);
    const float sum = at(r.in.at("x"), i) * inv_rms * weight + at(r.in.at("residual"), i);
    ASSERT_EQ(r.out.at("out")[i], to_float(to_bf16(sum))) << i;
  }
}

TEST(CpuOps, AnEmbeddingsScaleIsRoundedToTheWeightsDtypeAndItsProductOnce) {
  EXPECT_EQ(embedding_scale(std::sqrt(640.0), DType::bf16), 25.25f);
  EXPECT_EQ(embedding_scale(std::sqrt(640.0), DType::f32), static_cast<float>(std::sqrt(640.0)));
  CpuFixture cpu({.threads = 1});
  const EmbeddingCase c{DType::bf16, 6, 20, 33, 25.25f};
  const OpRun r = run(cpu.harness, c, 3);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const int64_t row = static_cast<int64_t>(r.in.at("index")[t]);
    for (int64_t i = 0; i < c.hidden; ++i) {
      const float matmul = static_cast<float>(r.in.at("table")[row * c.hidden + i]) * c.scale;
      ASSERT_EQ(r.out.at("out")[t * c.hidden + i], to_float(to_bf16(matmul)));
    }
  }
}

TEST(CpuOps, GatedActivationsOfLargeGatesAreTheGateOrNothing) {
  CpuFixture cpu({.threads = 1});
  Harness& h = cpu.harness;
  const std::vector<double> gates{-3e4, -100, -30, 30, 100, 3e4};
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::gelu_sigmoid}) {
    Vector row = gates;
    row.insert(row.end(), gates.size(), 1.0);  // up
    const Tensor gate_up = h.filled(DType::f32, 1, 12, row), grad_out = h.filled(DType::f32, 1, 6, Vector(6, 1.0));
    const Tensor out = h.poisoned(DType::f32, 1, 6), grad = h.poisoned(DType::f32, 1, 12);
    h.ops.gated_forward(h.stream, {.gate_up = gate_up.view, .out = out.view, .activation = activation});
    h.ops.gated_backward(h.stream, {.gate_up = gate_up.view,
                                    .grad_out = grad_out.view,
                                    .grad_gate_up = grad.view,
                                    .out = {},
                                    .activation = activation});
    const Vector values = h.read(out), slopes = h.read(grad);
    for (size_t i = 0; i < gates.size(); ++i) {
      EXPECT_NEAR(values[i], std::max(gates[i], 0.0), 1e-11) << gates[i];
      EXPECT_NEAR(slopes[i], gates[i] > 0 ? 1.0 : 0.0, 1e-11) << gates[i];
      EXPECT_NEAR(slopes[i + 6], std::max(gates[i], 0.0), 1e-11) << gates[i];
    }
  }
}

TEST(CpuOps, CrossEntropyWithoutBackwardLeavesTheLogits) {
  CpuFixture cpu({.threads = 1});
  for (const CrossEntropyCase& c : kCrossEntropyCases) {
    const OpRun r = run(cpu.harness, c, 3);
    EXPECT_EQ(r.out.at("untouched_logits"), r.in.at("logits")) << name_of(c);
  }
}

TEST(CpuOps, IgnoredTokensHaveZeroLossAndZeroGradient) {
  CpuFixture cpu({.threads = 1});
  const CrossEntropyCase c{DType::f32, 6, 40, 2};
  const OpRun r = run(cpu.harness, c, 3);
  for (int64_t t = 1; t < c.rows; t += 2) {
    EXPECT_EQ(r.out.at("loss")[t], 0);
    EXPECT_EQ(r.out.at("correct")[t], 0);
    for (int64_t i = 0; i < c.vocab; ++i) EXPECT_EQ(r.out.at("grad_logits")[t * c.vocab + i], 0);
  }
}

TEST(CpuOps, FinishGradientRoundsToNearestEvenAndSumsTheRoundedSquares) {
  CpuFixture cpu({.threads = 2});
  for (const FinishGradientCase& c : kFinishGradientCases) {
    const OpRun r = run(cpu.harness, c, 5);
    const Values expected = reference(c, r.in);
    EXPECT_EQ(r.out.at("out"), expected.at("out")) << name_of(c);
    for (size_t part = 0; part < static_cast<size_t>(c.parts); ++part)
      EXPECT_NEAR(r.out.at("sums_of_squares")[part] / expected.at("sums_of_squares")[part], 1.0, 1e-13) << name_of(c);
  }
}

TEST(CpuOps, SumLossesAddsInDouble) {
  CpuFixture cpu({.threads = 2});
  for (const SumLossesCase& c : kSumLossesCases) {
    const OpRun r = run(cpu.harness, c, 5);
    const Values expected = reference(c, r.in);
    EXPECT_NEAR(r.out.at("loss_sum")[0], expected.at("loss_sum")[0], 1e-9);
    EXPECT_EQ(r.out.at("correct_sum"), expected.at("correct_sum"));
  }
}

}  // namespace
}  // namespace megatrain::testing
