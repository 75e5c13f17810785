// Follows a run directory: what is new in it, and whether the run is running or how it ended.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/report/report_data.h"
#include "megatrain/watch/line_tail.h"

namespace megatrain {

enum class RunPhase { absent, running, complete, stopped, failed, killed };
const char* phase_name(RunPhase phase);
inline bool has_ended(RunPhase phase) { return phase > RunPhase::running; }

// What a program is told about a run: one object per line of `watch --json --follow`. `event` is one of
// - "step", "evaluation", "sample": with the contents of the run's files
// - "back": a resumed run continues after `step`; what was reported about later steps is no longer valid
// - "state": with `state`, `step` and `steps`, and for an end `exit_code` and `message`
//
// What was read stays valid while a run's directory or files are missing, and is not reported again when they return.
using RunEvent = nlohmann::json;
using TellEvent = std::function<void(RunEvent)>;

class RunFollower {
 public:
  explicit RunFollower(std::string path);

  // Reports what is new since the last call, one event at a time, because a long run has too many to hold. Returns the
  // "state" event, to be reported after all others, or null if the state has not changed. Never throws because of what
  // a run directory holds: damaged lines are skipped and counted. `now_s` is the time of day.
  RunEvent poll(double now_s, const TellEvent& tell = {});

  // Updates only whether the run is running or how it ended, without reading the run's lines.
  void look(double now_s);

  const std::string& path() const { return path_; }
  const ReportData& data() const { return data_; }
  const nlohmann::json& live() const { return live_; }  // RUN/live.json; null: missing or damaged
  std::string live_text(const char* key) const;         // a text in it; empty: it has no such text
  RunPhase phase() const { return phase_; }
  int exit_code() const { return exit_code_; }  // of a run that has ended; 137 if it was killed
  const std::string& message() const { return message_; }
  int64_t damaged_lines() const { return damaged_; }
  // How often reported steps were taken back ("back" events).
  int64_t times_back() const { return times_back_; }
  void tell_state(ReportData& data) const;  // sets its `state` and `why`
  double seconds_left() const;              // see StepPace; negative: unknown

  // The object that `watch --json` prints.
  nlohmann::json state() const;

 private:
  void read_about();
  void read_live();
  void decide_phase(double now_s);
  std::string advice() const;  // for a run that ended without a message
  void read_steps(const TellEvent& tell);
  void read_others(const TellEvent& tell);

  std::string path_;
  ReportData data_;
  bool about_read_ = false;
  LineTail metrics_, evaluations_, samples_;
  nlohmann::json live_;
  RunPhase phase_ = RunPhase::absent;
  int exit_code_ = 0;
  std::string message_;
  std::string go_on_ = "megatrain train CONFIG.yaml --resume";  // until the run's own command can be read
  int64_t damaged_ = 0, times_back_ = 0;
  std::map<std::string, int64_t> told_;  // reported lines of evaluations and samples, with their steps
  // When live.json says it was written, and when this process saw it change.
  double written_ = 0, changed_s_ = 0;
};

}  // namespace megatrain
