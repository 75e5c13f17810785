#include "megatrain/base/work_progress.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

TEST(WorkProgress, ShortWorkSaysNothing) {
  testing::internal::CaptureStderr();
  {
    WorkProgress progress("counting", 3);
    for (int i = 0; i < 3; ++i) progress.add(1);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(WorkProgress, LongWorkSaysHowFarItIs) {
  testing::internal::CaptureStderr();
  {
    WorkProgress progress("counting", 4, 0);
    progress.add(1);
    progress.add(3);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "counting: 25%, 0s left\ncounting: 100%, 0s left\n");
}

}  // namespace
}  // namespace megatrain
