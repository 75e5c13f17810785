#include "megatrain/watch/watcher.h"

#include <algorithm>
#include <chrono>

#include "megatrain/io/json_text.h"

namespace megatrain {

Watcher::Watcher(const std::vector<std::string>& paths, const AlertLimits& limits, AlertCommand command)
    : command_(std::move(command)) {
  for (const std::string& path : paths) runs_.push_back(std::make_unique<WatchedRun>(path, limits));
}

std::vector<RunEvent> Watcher::poll() {
  const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::vector<RunEvent> all;
  command_.reap();
  for (const auto& run : runs_) {
    std::vector<RunEvent> events = run->follower.poll(now_s);
    const std::string& path = run->follower.path();
    const std::vector<Alert> alerts = run->alerts.look(run->follower, now_s, disk_free_at(path));
    // an end stays the last thing that is told of a run
    const bool ends = !events.empty() && events.back().at("event") == "state";
    for (const Alert& alert : alerts) {
      const nlohmann::json told = to_json(alert, path);
      run->raised.push_back(alert.message);
      if (run->seen) command_.run(json_text(told));
      events.insert(ends ? events.end() - 1 : events.end(), told);
    }
    run->seen = run->seen || run->follower.phase() != RunPhase::absent;
    std::move(events.begin(), events.end(), std::back_inserter(all));
  }
  return all;
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
