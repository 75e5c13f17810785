// Watches several runs: what is new in each, the alerts that follow, and the user's command for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatrain/watch/alert_command.h"
#include "megatrain/watch/alerts.h"
#include "megatrain/watch/run_follower.h"

namespace megatrain {

struct WatchedRun {
  RunFollower follower;
  Alerts alerts;
  std::vector<std::string> raised;  // messages of the alerts so far
  // Polled at least once: everything from now on is new, even if the run did not exist then.
  bool seen = false;

  WatchedRun(const std::string& path, const AlertLimits& limits) : follower(path), alerts(limits) {}
};

class Watcher {
 public:
  Watcher(const std::vector<std::string>& paths, const AlertLimits& limits, AlertCommand command);

  // Reports the events of all runs since the last call, including alerts. What a run had written before the first call
  // also raises alerts, but the command runs only for conditions that still hold.
  void poll(const TellEvent& tell = {});

  const std::vector<std::unique_ptr<WatchedRun>>& runs() const { return runs_; }
  bool all_ended() const;
  int exit_code() const;  // of the first run that did not end with 0

 private:
  std::vector<std::unique_ptr<WatchedRun>> runs_;
  AlertCommand command_;
};

}  // namespace megatrain
