#include "megatrain/host/thread_team.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace megatrain {
namespace {

// Runs in a process of its own. The limit does not apply to root, so the process becomes a user that runs nothing else.
[[noreturn]] void make_team_with_few_threads() {
  constexpr uid_t kNobody = 65534;
  constexpr rlim_t kFew = 4;
  constexpr unsigned kMostSeconds = 60;
  ::alarm(kMostSeconds);  // ends a team that waits for threads it could not start
  if (::getuid() == 0 && ::setuid(kNobody) != 0) std::abort();
  const rlimit limit{kFew, kFew};
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) std::abort();
  try {
    const ThreadTeam team(64);
    std::fprintf(stderr, "the limit does not hold");
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "threads ran out: %s", error.what());
  }
  std::_Exit(0);
}

TEST(ThreadTeam, WhereThreadsRunOutTheStartedOnesEndAndTheErrorIsThrown) {
  EXPECT_EXIT(make_team_with_few_threads(), ::testing::ExitedWithCode(0), "threads ran out");
}

}  // namespace
}  // namespace megatrain
