#include "megatrain/watch/alert_command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <tuple>

#include <fmt/format.h>

#include "megatrain/base/log.h"

extern char** environ;

namespace megatrain {

void AlertCommand::run(const std::string& alert) {
  constexpr size_t kAtOnce = 8, kMostBytes = 4096;  // a pipe can hold a whole alert
  if (command_.empty()) return;
  reap();
  if (children_.size() >= kAtOnce) {
    if (!quiet_) log_warn(fmt::format("{} alert commands are still running: none is started for this alert", kAtOnce));
    return;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
  if (quiet_) {
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  // A process group of its own: a key that ends the watch does not end the command.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string shell = "sh", option = "-c", command = command_;
  char* argv[] = {shell.data(), option.data(), command.data(), nullptr};
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, "/bin/sh", &actions, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[0]);
  if (failed == 0) {
    children_.push_back(child);
    std::string line = alert.substr(0, kMostBytes - 1) + "\n";
    std::ignore = ::write(ends[1], line.data(), line.size());
  } else if (!quiet_) {
    log_warn(fmt::format("the alert command could not be started: {}", std::strerror(failed)));
  }
  ::close(ends[1]);
}

void AlertCommand::reap() {
  std::erase_if(children_, [this](pid_t child) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == 0) return false;
    if (status != 0 && !quiet_)
      log_warn(fmt::format("the alert command ended with {} {}", WIFEXITED(status) ? "exit code" : "signal",
                           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
    return true;
  });
}

}  // namespace megatrain
