#include "megatrain/watch/watcher.h"

#include <algorithm>

#include "megatrain/base/unix_time.h"
#include "megatrain/io/json_text.h"

namespace megatrain {

Watcher::Watcher(const std::vector<std::string>& paths, const AlertLimits& limits, AlertCommand command)
    : command_(std::move(command)) {
  for (const std::string& path : paths) runs_.push_back(std::make_unique<WatchedRun>(path, limits));
}

void Watcher::poll(const TellEvent& tell) {
  const double now_s = unix_s();
  command_.reap();
  for (const auto& run : runs_) {
    const RunEvent state = run->follower.poll(now_s, tell);
    const std::string& path = run->follower.path();
    for (const Alert& alert : run->alerts.look(run->follower, now_s, disk_free_at(path))) {
      const RunEvent event = to_json(alert, path);
      run->raised.push_back(alert.message);
      if (run->seen || alert.lasting) command_.run(json_text(event));
      if (tell) tell(event);
    }
    if (tell && !state.is_null()) tell(state);  // an end is the last thing reported about a run
    run->seen = true;
  }
}

bool Watcher::all_ended() const {
  return std::all_of(runs_.begin(), runs_.end(), [](const auto& run) { return has_ended(run->follower.phase()); });
}

int Watcher::exit_code() const {
  for (const auto& run : runs_) {
    if (run->follower.exit_code() != 0) return run->follower.exit_code();
  }
  return 0;
}

}  // namespace megatrain
