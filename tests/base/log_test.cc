#include "megatrain/base/log.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace megatrain {
namespace {

TEST(Log, WritesToStandardErrorAndMarksWarnings) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log_info("100% of 3 layers");
  log_warn("slow disk");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "100% of 3 layers\nwarning: slow disk\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Log, IsSilentWhenQuiet) {
  testing::internal::CaptureStderr();
  set_log_quiet(true);
  log_info("a");
  log_warn("b");
  set_log_quiet(false);
  log_info("c");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "c\n");
}

TEST(Log, LinesOfSeveralThreadsNeverMix) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) log_info(std::string(100, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_EQ(line, std::string(100, line.empty() ? '?' : line[0]));
  }
  EXPECT_EQ(count, 2000);
}

}  // namespace
}  // namespace megatrain
