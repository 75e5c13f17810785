#include "megatrain/run/step_pace.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

void add(StepPace& pace, int steps, double seconds) {
  for (int i = 0; i < steps; ++i) pace.add(seconds, 0);
}

TEST(StepPace, TheFirstStepsWarmUpIsForgottenAndANewSpeedIsThatOfTheLastSteps) {
  StepPace pace;
  EXPECT_EQ(pace.seconds(), 0);
  pace.add(60, 0);
  EXPECT_EQ(pace.seconds(), 60);
  pace.add(1, 0);
  EXPECT_EQ(pace.seconds(), 1);
  add(pace, 100, 1);
  add(pace, 11, 2);
  EXPECT_EQ(pace.seconds(), 2);
}

TEST(StepPace, AStepInWhichTheProcessWasSuspendedCountsForNothing) {
  StepPace pace;
  add(pace, 2, 1);
  pace.add(3600, 0);
  EXPECT_EQ(pace.seconds(), 1);
  add(pace, 1, 1);
  EXPECT_EQ(pace.seconds(), 1);
}

TEST(StepPace, ACheckpointCountsForItsShareOfTheSteps) {
  StepPace pace;
  for (int checkpoint = 0; checkpoint < 3; ++checkpoint) {
    add(pace, 99, 1);
    pace.add(1, 50);
  }
  EXPECT_DOUBLE_EQ(pace.seconds(), 1.5);
}

}  // namespace
}  // namespace megatrain
