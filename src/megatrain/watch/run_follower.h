// A run directory read again and again: what is new in it, and whether the run goes, or how it ended.
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

// What a process is told about a run: one object a line of `watch --json --follow`. `event` is "step", "evaluation",
// "sample" (with what the run's files say), "back" (a resumed run goes on behind `step`; what was told of later steps
// is no longer so), "state" (`state`, `step`, `steps`, and of an end `exit_code` and `message`). What was read of a run
// stays while its directory or its files are away, and is not told again when they are back.
using RunEvent = nlohmann::json;
using TellEvent = std::function<void(RunEvent)>;

class RunFollower {
 public:
  explicit RunFollower(std::string path);

  // Tells what came since the last call, one event at a time: a long run's are too many to be held. Returns the "state"
  // event, which comes behind all others; null: the state is the same. Never throws for what a run directory holds: a
  // damaged line is left out and counted. `now_s` is the time of day.
  RunEvent poll(double now_s, const TellEvent& tell = {});

  // The part of it that says whether the run goes, or how it ended: the run's lines are not read.
  void look(double now_s);

  const std::string& path() const { return path_; }
  const ReportData& data() const { return data_; }
  const nlohmann::json& live() const { return live_; }  // RUN/live.json; null: none, or damaged
  std::string live_text(const char* key) const;         // of it; empty: it has no such text
  RunPhase phase() const { return phase_; }
  int exit_code() const { return exit_code_; }  // of a run that has ended; 137 of one that was killed
  const std::string& message() const { return message_; }
  int64_t damaged_lines() const { return damaged_; }
  // How often what was told was taken back.
  int64_t times_back() const { return times_back_; }
  void tell_state(ReportData& data) const;  // sets its `state` and `why`
  double seconds_left() const;              // as StepPace has it; negative: not known

  // One object: what `watch --json` prints.
  nlohmann::json state() const;

 private:
  void read_about();
  void read_live();
  void decide_phase(double now_s);
  std::string advice() const;  // to who finds the run ended without a word
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
  std::string go_on_ = "megatrain train CONFIG.yaml --resume";  // as long as the run's own cannot be read
  int64_t damaged_ = 0, times_back_ = 0;
  std::map<std::string, int64_t> told_;  // lines of evaluations and samples, and their steps
  double written_ = 0, changed_s_ = 0;   // of live.json, and when this process saw it change
};

}  // namespace megatrain
