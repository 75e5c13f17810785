#include "megatrain/base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
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

TEST(Log, ControlCharactersOfAMessageNeverReachTheTerminal) {
  testing::internal::CaptureStderr();
  log_info("key \x1b]0;owned\x07 of\nx.json");
  log_warn("role \u009b31m \xff");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "key \\x1b]0;owned\\x07 of\\nx.json\nwarning: role \\u009b31m \\xff\n");
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

TEST(Log, AStatusIsALineWhereNobodyWatches) {
  testing::internal::CaptureStderr();
  log_status("step 1");
  log_status("step 2");
  end_log_status();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "step 1\nstep 2\n");
}

// While this lives, standard error is a terminal with 20 columns.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)), former_(::dup(STDERR_FILENO)) {
    ::grantpt(master_);
    ::unlockpt(master_);
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    const winsize size{.ws_row = 10, .ws_col = 20};
    ::ioctl(slave, TIOCSWINSZ, &size);
    termios mode{};
    ::tcgetattr(slave, &mode);
    mode.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // a newline stays a newline
    ::tcsetattr(slave, TCSANOW, &mode);
    ::dup2(slave, STDERR_FILENO);
    ::close(slave);
  }
  ~Terminal() {
    ::dup2(former_, STDERR_FILENO);
    ::close(former_);
    ::close(master_);
  }
  // The output up to its `lines`-th newline; one read may return less than was written.
  std::string shown(std::ptrdiff_t lines) const {
    std::string text;
    char bytes[4096];
    while (std::count(text.begin(), text.end(), '\n') < lines) {
      const ssize_t count = ::read(master_, bytes, sizeof bytes);
      if (count <= 0) break;
      text.append(bytes, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int master_, former_;
};

TEST(Log, AStatusIsRewrittenOnATerminalAndLeftStandingByOtherLines) {
  const Terminal terminal;
  ASSERT_TRUE(log_is_terminal());
  log_status("step 1");
  log_status("step 2 " + std::string(50, '.'));
  log_info("saved");
  log_status("step 3");
  end_log_status();
  end_log_status();
  // the terminal has 20 columns, and no word is cut
  EXPECT_EQ(terminal.shown(3), "\r\x1b[Kstep 1\r\x1b[Kstep 2\nsaved\n\r\x1b[Kstep 3\n");
}

}  // namespace
}  // namespace megatrain
