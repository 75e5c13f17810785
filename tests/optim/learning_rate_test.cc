#include "megatrain/optim/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

constexpr ScheduleKind kAllKinds[] = {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine,
                                      ScheduleKind::wsd};

TEST(LearningRate, WarmupRisesLinearlyAndTheFirstStepMoves) {
  for (const ScheduleKind kind : kAllKinds) {
    const LearningRate s{.kind = kind, .lr = 8e-4, .min_lr = 1e-4, .warmup = 4, .steps = 100};
    EXPECT_DOUBLE_EQ(learning_rate(s, 1), 2e-4);
    EXPECT_DOUBLE_EQ(learning_rate(s, 2), 4e-4);
    EXPECT_DOUBLE_EQ(learning_rate(s, 3), 6e-4);
    EXPECT_EQ(learning_rate(s, 4), 8e-4);
    EXPECT_EQ(learning_rate(s, 5), 8e-4);
  }
}

TEST(LearningRate, ConstantStaysAtThePeak) {
  const LearningRate s{.kind = ScheduleKind::constant, .lr = 3e-4, .min_lr = 1e-5, .steps = 10};
  for (const int64_t step : {1, 5, 10, 1000}) EXPECT_EQ(learning_rate(s, step), 3e-4);
}

// transformers, get_linear_schedule_with_warmup: max(0, (total - c) / max(1, total - warmup)).
TEST(LearningRate, LinearIsThatOfTransformersAfterTheWarmup) {
  const LearningRate s{.kind = ScheduleKind::linear, .lr = 1, .warmup = 2, .steps = 10};
  const double expected[] = {0.5, 1, 1, 7 / 8.0, 6 / 8.0, 5 / 8.0, 4 / 8.0, 3 / 8.0, 2 / 8.0, 1 / 8.0, 0, 0};
  for (int64_t step = 1; step <= 12; ++step) EXPECT_DOUBLE_EQ(learning_rate(s, step), expected[step - 1]) << step;
}

// transformers, get_cosine_schedule_with_warmup: 0.5 * (1 + cos(pi * 2 * cycles * progress)), cycles 0.5; values by
// hand for progress 0, 1/4, 1/2, 3/4.
TEST(LearningRate, CosineIsThatOfTransformersAfterTheWarmup) {
  const LearningRate s{.kind = ScheduleKind::cosine, .lr = 2, .steps = 4};
  EXPECT_EQ(learning_rate(s, 1), 2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 2), 1 + std::numbers::sqrt2 / 2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 1 - std::numbers::sqrt2 / 2);
  EXPECT_EQ(learning_rate(s, 5), 0);
}

// transformers, get_cosine_with_min_lr_schedule_with_warmup: factor * (1 - rate) + rate, rate = min_lr / lr.
TEST(LearningRate, MinLrLiftsTheDecayAndNotTheWarmup) {
  const LearningRate cosine{.kind = ScheduleKind::cosine, .lr = 1e-3, .min_lr = 1e-4, .warmup = 2, .steps = 6};
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 1), 5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 5), 0.5 * 9e-4 + 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 7), 1e-4);
  const LearningRate linear{.kind = ScheduleKind::linear, .lr = 1e-3, .min_lr = 2e-4, .steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(linear, 2), 0.75 * 8e-4 + 2e-4);
  EXPECT_DOUBLE_EQ(learning_rate(linear, 9), 2e-4);
}

TEST(LearningRate, WarmupStableDecayFallsOverTheLastTenthOfTheSteps) {
  const LearningRate s{.kind = ScheduleKind::wsd, .lr = 1, .min_lr = 0.2, .warmup = 5, .steps = 40};
  EXPECT_EQ(decay_steps(s), 4);
  for (const int64_t step : {5, 6, 20, 36, 37}) EXPECT_EQ(learning_rate(s, step), 1) << step;
  EXPECT_DOUBLE_EQ(learning_rate(s, 38), 0.75 * 0.8 + 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 39), 0.50 * 0.8 + 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 40), 0.25 * 0.8 + 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 41), 0.2);
}

TEST(LearningRate, TheDecayOfWsdLeavesTheWarmupAlone) {
  const LearningRate s{.kind = ScheduleKind::wsd, .lr = 1, .warmup = 6, .decay = 1.0, .steps = 10};
  EXPECT_EQ(decay_steps(s), 4);
  EXPECT_EQ(learning_rate(s, 6), 1);
  EXPECT_EQ(learning_rate(s, 7), 1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 0.75);
}

TEST(LearningRate, WarmupBelowOneIsAFractionOfTheStepsRoundedUp) {
  const auto steps_of = [](double warmup, int64_t steps) {
    return warmup_steps({.lr = 1, .warmup = warmup, .steps = steps});
  };
  EXPECT_EQ(steps_of(0, 100), 0);
  EXPECT_EQ(steps_of(0.03, 100), 3);
  EXPECT_EQ(steps_of(0.1, 30), 3);  // 0.1 * 30 is above 3 in double
  EXPECT_EQ(steps_of(0.1, 31), 4);
  EXPECT_EQ(steps_of(0.001, 10), 1);
  EXPECT_EQ(steps_of(1, 100), 1);
  EXPECT_EQ(steps_of(25, 100), 25);
}

TEST(LearningRate, AWarmupLongerThanTheRunOnlyWarmsUp) {
  for (const ScheduleKind kind : kAllKinds) {
    const LearningRate s{.kind = kind, .lr = 1, .warmup = 20, .steps = 10};
    EXPECT_DOUBLE_EQ(learning_rate(s, 10), 0.5);
  }
}

TEST(LearningRate, NamesParseAndOthersAreRefusedByName) {
  EXPECT_EQ(parse_schedule("constant"), ScheduleKind::constant);
  EXPECT_EQ(parse_schedule("linear"), ScheduleKind::linear);
  EXPECT_EQ(parse_schedule("cosine"), ScheduleKind::cosine);
  EXPECT_EQ(parse_schedule("wsd"), ScheduleKind::wsd);
  try {
    parse_schedule("cosin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_config);
    EXPECT_NE(std::string(error.what()).find("\"cosin\""), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("cosine"), std::string::npos);
  }
}

TEST(LearningRate, NonsenseIsRefused) {
  const LearningRate good{
      .kind = ScheduleKind::wsd, .lr = 1e-3, .min_lr = 1e-4, .warmup = 0.5, .decay = 0.1, .steps = 10};
  EXPECT_NO_THROW(check_schedule(good));
  const auto refused = [&](auto change) {
    LearningRate s = good;
    change(s);
    EXPECT_THROW(check_schedule(s), Error);
  };
  refused([](LearningRate& s) { s.lr = -1; });
  refused([](LearningRate& s) { s.lr = std::nan(""); });
  refused([](LearningRate& s) { s.lr = INFINITY; });
  refused([](LearningRate& s) { s.min_lr = 1; });
  refused([](LearningRate& s) { s.min_lr = -1e-9; });
  refused([](LearningRate& s) { s.warmup = -1; });
  refused([](LearningRate& s) { s.warmup = 2.5; });
  refused([](LearningRate& s) { s.warmup = std::nan(""); });
  refused([](LearningRate& s) { s.decay = 0; });
  refused([](LearningRate& s) { s.decay = 1.5; });
  refused([](LearningRate& s) { s.steps = -1; });
}

}  // namespace
}  // namespace megatrain
