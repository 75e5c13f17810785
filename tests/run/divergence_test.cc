#include "megatrain/run/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace megatrain {
namespace {

constexpr int64_t kVocab = 151936;  // guessing gives a loss of 11.9

// The steps, from 1, at which it warns.
std::vector<int64_t> told(const std::vector<double>& losses, int64_t vocab = kVocab) {
  DivergenceWatch watch(vocab);
  std::vector<int64_t> steps;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (watch.look(losses[i])) steps.push_back(static_cast<int64_t>(i) + 1);
  }
  return steps;
}

using Steps = std::vector<int64_t>;

TEST(Divergence, ALossFarAboveGuessingIsToldOnceAndAgainWhereItIsTenTimesWorse) {
  EXPECT_EQ(told({8.3, 9, 60, 70, 80, 599, 601, 257807, 257000}), (Steps{3, 7, 8}));
  EXPECT_EQ(told({8.3, 257807}), Steps{2});
  EXPECT_EQ(told({2, 2, 14, 15, 16, 17, 18, 100, 159}), Steps{5}) << "three steps in a row";
  EXPECT_EQ(told({0.5, 0.4, 9, 9, 9, 9}, 256), Steps{5});
}

TEST(Divergence, NoiseAndABadStartAreNotTold) {
  std::vector<double> noisy;
  for (int i = 0; i < 1000; ++i) noisy.push_back(3 + 3 * std::sin(i * 1.7) + (i % 97 == 0 ? 9 : 0));
  EXPECT_EQ(told(noisy), Steps{});
  EXPECT_EQ(told({11.9, 12.3, 13.1, 12.8, 11.2, 10.9}), Steps{}) << "random weights, near guessing";
  EXPECT_EQ(told({2, 2, 30, 2, 30, 30, 2}), Steps{}) << "single steps of few tokens";
  EXPECT_EQ(told({40, 39, 38, 36, 37}), Steps{}) << "above guessing from the start, and falling";
}

}  // namespace
}  // namespace megatrain
