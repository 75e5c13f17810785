// Several runs watched at once: what came of each, the alerts that follow from it, and the user's command for them.
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
  std::vector<std::string> raised;  // the alerts so far, as sentences
  bool seen = false;                // it was looked at: what comes now is new, also of a run that was not there yet

  WatchedRun(const std::string& path, const AlertLimits& limits) : follower(path), alerts(limits) {}
};

class Watcher {
 public:
  Watcher(const std::vector<std::string>& paths, const AlertLimits& limits, AlertCommand command);

  // Tells the events of all runs since the last call, alerts among them. Of what a run had told before the first call
  // there are alerts, but the command is not run for them.
  void poll(const TellEvent& tell = {});

  const std::vector<std::unique_ptr<WatchedRun>>& runs() const { return runs_; }
  bool all_ended() const;
  int exit_code() const;  // of the first run that did not end with 0

 private:
  std::vector<std::unique_ptr<WatchedRun>> runs_;
  AlertCommand command_;
};

}  // namespace megatrain
