// A hand-made run directory, as a trainer would write it.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "megatrain/io/json.h"
#include "megatrain/watch/run_follower.h"
#include "tests/support/fixtures.h"

namespace megatrain {

inline nlohmann::json step_line(int64_t step, double loss, double seconds = 0.5) {
  return {{"step", step},
          {"steps", 100},
          {"loss", loss},
          {"grad_norm", 1.0},
          {"lr", 1e-4},
          {"seconds", seconds},
          {"tokens", 1024},
          {"trained_tokens", 1000},
          {"tokens_per_s", 2048.0},
          {"bound_by", "compute"},
          {"hbm_peak", 1 << 20},
          {"host_peak", 1 << 21}};
}

class MadeRun {
 public:
  MadeRun() { write_bytes(path() + "/config.resolved.yaml", "steps: 100\n"); }

  const std::string& path() const { return directory_.path(); }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(path() + "/" + name, std::ios::app) << text;
  }
  void step(int64_t number, double loss) const { append("metrics.jsonl", step_line(number, loss).dump() + "\n"); }

  // Writes live.json for a process; by default for this one, which stays alive.
  void live(double written, const std::string& state = "running", int64_t pid = ::getpid(),
            nlohmann::json more = nlohmann::json::object()) const {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    nlohmann::json text = {{"version", 1},       {"pid", pid},        {"host", host.data()},
                           {"written", written}, {"every_s", 2.0},    {"state", state},
                           {"steps", 100},       {"doing", "step 3"}, {"running", ""},
                           {"floor", nullptr},   {"lanes", nullptr},  {"memory", nlohmann::json::object()}};
    text.update(more);
    write_bytes(path() + "/live.json", text.dump());
  }

 private:
  TemporaryDirectory directory_;
};

inline std::vector<RunEvent> events_of(RunFollower& run, double now_s) {
  std::vector<RunEvent> events;
  RunEvent state = run.poll(now_s, [&](RunEvent event) { events.push_back(std::move(event)); });
  if (!state.is_null()) events.push_back(std::move(state));
  return events;
}

inline std::vector<std::string> names_of(const std::vector<RunEvent>& events) {
  std::vector<std::string> names;
  for (const RunEvent& event : events)
    names.push_back(event.at("event").get<std::string>() +
                    (event.contains("step") ? " " + event.at("step").dump() : ""));
  return names;
}
using Names = std::vector<std::string>;

}  // namespace megatrain
