// Which tokens are sampled, how often, and from which candidates.
#include "megatrain/generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -3.0f, 0.0f, 1.5f};

// softmax(logits / temperature) over the kept ids.
std::map<int32_t, double> exact(double temperature, const std::vector<int32_t>& kept) {
  std::map<int32_t, double> probability;
  double sum = 0;
  for (const int32_t id : kept) sum += std::exp(static_cast<double>(kLogits[static_cast<size_t>(id)]) / temperature);
  for (const int32_t id : kept)
    probability[id] = std::exp(static_cast<double>(kLogits[static_cast<size_t>(id)]) / temperature) / sum;
  return probability;
}

// Sampled frequencies are within five standard deviations (and five draws) of the exact probabilities, and no other id
// is sampled.
void expect_drawn(const Sampling& sampling, const std::vector<int32_t>& kept) {
  constexpr int64_t kDraws = 40000;
  const std::map<int32_t, double> wanted = exact(sampling.temperature, kept);
  const std::vector<Candidate> list = candidates(kLogits, sampling);
  ASSERT_EQ(list.size(), kept.size());
  for (const Candidate& candidate : list) {
    ASSERT_TRUE(wanted.contains(candidate.id)) << candidate.id;
    EXPECT_NEAR(candidate.probability, wanted.at(candidate.id), 1e-12);
  }
  std::map<int32_t, int64_t> drawn;
  for (int64_t i = 0; i < kDraws; ++i) ++drawn[sample(kLogits, sampling, static_cast<uint64_t>(i % 7), i / 7)];
  for (const auto& [id, count] : drawn) EXPECT_TRUE(wanted.contains(id)) << id;
  for (const auto& [id, p] : wanted) {
    const double share = static_cast<double>(drawn[id]) / kDraws;
    EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 5.0 / kDraws) << id;
  }
}

TEST(Sampler, DrawsByTheSoftmaxAtATemperature) {
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  expect_drawn({.temperature = 1, .seed = 1}, all);
  expect_drawn({.temperature = 0.4, .seed = 2}, all);
  expect_drawn({.temperature = 3, .seed = 3}, all);
}

TEST(Sampler, TopKKeepsTheLikeliestAndOfEqualsTheLowerId) {
  expect_drawn({.temperature = 1, .top_k = 3, .seed = 4}, {1, 3, 7});
  expect_drawn({.temperature = 1, .top_k = 1, .seed = 4}, {1});
  expect_drawn({.temperature = 1, .top_k = 100, .seed = 4}, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST(Sampler, TopPKeepsTheFewestThatHoldSoMuchProbability) {
  // at temperature 1: 1 and 3 hold 0.29 each, 7 0.18, 4 0.11, 0 0.06
  expect_drawn({.temperature = 1, .top_p = 0.5, .seed = 5}, {1, 3});
  expect_drawn({.temperature = 1, .top_p = 0.7, .seed = 5}, {1, 3, 7});
  expect_drawn({.temperature = 1, .top_p = 0.001, .seed = 5}, {1});
  // among the top three, 1 and 3 have 0.77
  expect_drawn({.temperature = 1, .top_p = 0.7, .top_k = 3, .seed = 5}, {1, 3});
}

TEST(Sampler, TemperatureZeroTakesTheFirstOfTheLargest) { EXPECT_EQ(sample(kLogits, {}, 3, 5), 1); }

TEST(Sampler, WhatIsDrawnFollowsFromSeedSequenceAndPosition) {
  const auto draws = [](uint64_t seed, uint64_t sequence) {
    std::vector<int32_t> ids;
    for (int64_t position = 0; position < 50; ++position)
      ids.push_back(sample(kLogits, {.temperature = 2, .seed = seed}, sequence, position));
    return ids;
  };
  EXPECT_EQ(draws(1, 0), draws(1, 0));
  EXPECT_NE(draws(1, 0), draws(2, 0));
  EXPECT_NE(draws(1, 0), draws(1, 1));
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  std::vector<float> logits = kLogits;
  logits[5] = std::nanf("");
  expect_error(ExitCode::non_finite, {"not finite"}, [&] { sample(logits, {}, 0, 0); });
  expect_error(ExitCode::non_finite, {"not finite"}, [&] { sample(logits, {.temperature = 1}, 0, 0); });
  logits[5] = INFINITY;
  expect_error(ExitCode::non_finite, {"not finite"}, [&] { sample(logits, {}, 0, 0); });
  logits[5] = -INFINITY;
  EXPECT_EQ(sample(logits, {}, 0, 0), 1);
}

}  // namespace
}  // namespace megatrain
