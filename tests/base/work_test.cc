#include "megatrain/base/work.h"

#include <gtest/gtest.h>

#include "megatrain/base/work_progress.h"

namespace megatrain {
namespace {

TEST(Work, TheInnermostIsWhatTheProcessDoesNow) {
  EXPECT_EQ(work_now().what, "");
  const Work run("the run", {.then = "saves and stops"});
  EXPECT_EQ(work_now().what, "the run");
  EXPECT_EQ(work_now().duration, "for 0s so far");
  {
    const Work step("step 12", {.expected_s = 100, .ends_at_stop = true});
    EXPECT_EQ(work_now().what, "step 12");
    EXPECT_EQ(work_now().duration, "about 1m40s left");
    EXPECT_TRUE(work_now().ends_at_stop);
    EXPECT_EQ(work_now().then, "saves and stops") << "what the Work around it says";
    const Work ending("writing", {.then = "is complete"});
    EXPECT_EQ(work_now().then, "is complete");
    EXPECT_FALSE(work_now().ends_at_stop);
  }
  EXPECT_EQ(work_now().what, "the run");
}

TEST(Work, WhatIsDoneSaysHowLongTheRestTakesAndGoesBeforeWhatWasExpected) {
  Work work("half", {.expected_s = 1e6});
  work.advance(0.999999);
  EXPECT_EQ(work_now().duration, "about 1s left");
}

TEST(Work, LongerThanExpectedSaysHowLongItHasTaken) {
  const Work work("late", {.expected_s = 1e-9});
  EXPECT_EQ(work_now().duration, "for 0s so far");
}

TEST(Work, ProgressIsWork) {
  WorkProgress progress("counting", 3);
  EXPECT_EQ(work_now().what, "counting");
  progress.add(3);
  EXPECT_EQ(work_now().duration, "about 0s left");
}

}  // namespace
}  // namespace megatrain
