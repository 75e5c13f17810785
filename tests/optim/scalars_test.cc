#include "megatrain/optim/scalars.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

TEST(AdamWScalars, AreComputedInDoubleAndRoundedOnce) {
  const AdamWScalars s = adamw_scalars(
      {.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_factor = 0.25, .t = 2});
  EXPECT_EQ(s.clip, 0.25f);
  EXPECT_EQ(s.beta2, 0.95f);
  EXPECT_EQ(s.one_minus_beta1, static_cast<float>(1 - 0.9));
  EXPECT_NE(s.one_minus_beta1, 1.0f - 0.9f);
  EXPECT_EQ(s.one_minus_beta2, static_cast<float>(1 - 0.95));
  EXPECT_EQ(s.inv_sqrt_bias2, static_cast<float>(1 / std::sqrt(0.0975)));  // 1 - 0.95^2
  EXPECT_EQ(s.eps, 1e-8f);
  EXPECT_EQ(s.step_size, static_cast<float>(3e-4 / 0.19));  // 1 - 0.9^2
  EXPECT_EQ(s.decay, static_cast<float>(1 - 3e-5));
}

TEST(AdamWScalars, TheBiasCorrectionsVanishLateInARun) {
  const AdamWScalars s = adamw_scalars({.lr = 1e-3, .t = 1'000'000});
  EXPECT_EQ(s.inv_sqrt_bias2, 1.0f);
  EXPECT_EQ(s.step_size, 1e-3f);
  EXPECT_EQ(s.decay, 1.0f);
}

TEST(AdamWScalars, CountFromOne) { EXPECT_THROW(adamw_scalars({.lr = 1e-3, .t = 0}), Error); }

TEST(GradientNorm, AddsSquaresInLayerOrder) {
  EXPECT_EQ(gradient_norm(std::vector<double>{9, 16}), 5);
  EXPECT_EQ(gradient_norm({}), 0);
  // 1 is lost when added after 2^53 and kept when added before it, so the order matters.
  EXPECT_EQ(gradient_norm(std::vector<double>{0x1.0p53, 1, 1}), std::sqrt(0x1.0p53));
  EXPECT_EQ(gradient_norm(std::vector<double>{1, 1, 0x1.0p53}), std::sqrt(0x1.0p53 + 2));
}

// For one layer with this norm.
double factor(double norm, double clip) { return clip_factor(std::vector<double>{norm * norm}, clip); }

TEST(ClipFactor, IsThatOfTorch) {
  EXPECT_DOUBLE_EQ(factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(factor(0.5, 1), 1);
  EXPECT_EQ(factor(0, 1), 1);
  EXPECT_LT(factor(1, 1), 1);  // torch divides by norm + 1e-6
  EXPECT_EQ(factor(1e30, 0), 1);
}

TEST(ClipFactor, DoesNotHideANonFiniteNorm) {
  EXPECT_TRUE(std::isnan(factor(std::numeric_limits<double>::quiet_NaN(), 1)));
  EXPECT_TRUE(std::isnan(factor(std::numeric_limits<double>::infinity(), 1)));
}

}  // namespace
}  // namespace megatrain
