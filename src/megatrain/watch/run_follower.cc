#include "megatrain/watch/run_follower.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/hub/model_files.h"
#include "megatrain/base/error.h"
#include "megatrain/base/host_name.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/run/checkpoints.h"
#include "megatrain/run/live_file.h"
#include "megatrain/run/run_files.h"
#include "megatrain/run/run_lock.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kKilled = 128 + SIGKILL;
// After this many seconds without a new live.json a run counts as gone, on whatever machine it ran.
constexpr double kSilent = 30;

json read_small_json(const std::string& path) {
  constexpr int64_t kMost = 64 * kMiB;
  try {
    std::error_code none;
    if (!fs::is_regular_file(path, none)) return nullptr;
    json text = json::parse(read_text_file(path, kMost), nullptr, false);
    return text.is_object() ? text : json();
  } catch (const Error&) {
    return nullptr;
  }
}

bool on_this_host(const json& owner) {
  const std::string host = host_name();
  return !host.empty() && owner.contains("host") && owner["host"] == host;
}

bool process_is_gone(const json& owner) {
  if (!on_this_host(owner) || !owner.contains("pid") || !owner["pid"].is_number_integer()) return false;
  return ::kill(owner["pid"].get<pid_t>(), 0) != 0 && errno == ESRCH;
}

// For a live.json that says "running". The lock answers at once if it belongs to this machine. A lock of another
// machine may be invisible from here, or kept by a server after the process ended.
bool is_gone(const json& live, LockState lock, double silent_s, double every_s) {
  if (on_this_host(live)) {
    if (lock == LockState::held) return false;
    if (lock == LockState::free || (lock == LockState::absent && process_is_gone(live))) return true;
    if (silent_s > 2 * every_s + 1 && process_is_gone(live)) return true;
  }
  return silent_s > std::max(kSilent, 5 * every_s);
}

// For a run whose live.json is missing, or reports an end.
bool is_owned(const json& owner, LockState lock) {
  if (lock == LockState::held || lock == LockState::absent) return lock == LockState::held;
  const bool elsewhere = owner.contains("host") && !on_this_host(owner);
  return elsewhere || (lock == LockState::unknown && !process_is_gone(owner));
}

template <class T>
T value_of(const json& object, const char* key, T otherwise) {
  if (!object.is_object() || !object.contains(key)) return otherwise;
  const json& value = object[key];
  if constexpr (std::is_same_v<T, std::string>) {
    return value.is_string() ? value.get<T>() : otherwise;
  } else {
    return value.is_number() ? value.get<T>() : otherwise;
  }
}

bool same(const RunStep& a, const RunStep& b) { return a.step == b.step && a.loss == b.loss && a.seconds == b.seconds; }

void keep_peaks(const RunStep& step, std::vector<TierMemory>& tiers) {
  for (TierMemory& tier : tiers) {
    if (tier.title == "Device") tier.peak = std::max(tier.peak, step.hbm_peak);
    if (tier.title == "Host") tier.peak = std::max(tier.peak, step.host_peak);
  }
}

}  // namespace

const char* phase_name(RunPhase phase) {
  switch (phase) {
    case RunPhase::absent: return "absent";
    case RunPhase::running: return "running";
    case RunPhase::complete: return "complete";
    case RunPhase::stopped: return "stopped";
    case RunPhase::failed: return "failed";
    case RunPhase::killed: return "killed";
  }
  return "";
}

RunFollower::RunFollower(std::string path)
    : path_(path.substr(0, path.find_last_not_of('/') + 1)),
      metrics_(path_ + "/metrics.jsonl"),
      evaluations_(path_ + "/eval.jsonl"),
      samples_(path_ + "/samples.jsonl") {
  std::error_code none;
  data_.run = fs::weakly_canonical(path_, none).string();
  if (data_.run.empty()) data_.run = path_;
  data_.state = phase_name(phase_);
}

RunEvent RunFollower::poll(double now_s, const TellEvent& tell) {
  TellEvent tell_of_run;
  if (tell) {
    tell_of_run = [&](RunEvent event) {
      event["run"] = path_;
      tell(std::move(event));
    };
  }
  const RunPhase before = phase_;
  const int64_t steps_before = data_.steps;
  // The run's state is read before its lines, so that an end is reported after all of them.
  look(now_s);
  read_steps(tell_of_run);
  read_others(tell_of_run);
  data_.complete = phase_ == RunPhase::complete;
  tell_state(data_);
  const int64_t planned = value_of<int64_t>(live_, "steps", data_.history.planned_steps);
  if (planned > 0) data_.steps = planned;
  if (phase_ == before && (data_.steps == steps_before || phase_ != RunPhase::running)) return nullptr;
  RunEvent event = {{"event", "state"},
                    {"run", path_},
                    {"state", phase_name(phase_)},
                    {"step", data_.history.steps.empty() ? 0 : data_.history.steps.back().step},
                    {"steps", data_.steps}};
  if (has_ended(phase_)) {
    event["exit_code"] = exit_code_;
    event["message"] = message_;
  }
  return event;
}

void RunFollower::look(double now_s) {
  about_read_ = about_read_ && is_run_directory(path_);
  if (!about_read_ && is_run_directory(path_)) read_about();
  read_live();
  decide_phase(now_s);
  if (phase_ != RunPhase::killed) return;
  // It may have ended between the two reads: a run reports its end before its lock and process go.
  read_live();
  decide_phase(now_s);
}

void RunFollower::read_about() {
  try {
    go_on_ = resume_command(read_run(path_));
    ReportData about = read_report(path_, {});
    about.history = std::move(data_.history);
    about_read_ = about.damaged.empty();  // otherwise it is read again: it may still be being written
    data_ = std::move(about);
    for (const RunStep& step : data_.history.steps) keep_peaks(step, data_.memory);
  } catch (const Error&) {
    // Being written, or damaged: go on without it.
  }
}

void RunFollower::read_live() {
  live_ = read_small_json(path_ + "/" + kLiveFile);
  if (live_.is_null()) return;
  try {
    if (!live_.at("lanes").is_null()) data_.lanes = read_live_lanes(live_, kLiveFile);
  } catch (const std::exception&) {
    // From another version; the lanes of lanes.json stay.
  }
  const json memory = live_.value("memory", json::object());
  for (TierMemory& tier : data_.memory) {
    const char* key = tier.title == "Device" ? "hbm" : tier.title == "Host" ? "host" : "disk";
    if (!memory.is_object() || !memory.contains(key)) continue;
    tier.used = value_of<int64_t>(memory[key], "used", 0);
    tier.limit = value_of<int64_t>(memory[key], "limit", 0);
    tier.peak = std::max({tier.peak, tier.used, value_of<int64_t>(memory[key], "peak", 0)});
  }
}

void RunFollower::decide_phase(double now_s) {
  const std::string state = value_of<std::string>(live_, "state", "");
  const double written = value_of(live_, "written", 0.0);
  if (written != written_ || changed_s_ == 0) {
    // A file that was old when first seen is as old as it says.
    changed_s_ = changed_s_ == 0 && written > 0 ? std::min(now_s, written) : now_s;
    written_ = written;
  }
  const LockState lock = lock_state(path_);
  const json owner = read_small_json(path_ + "/lock");
  std::error_code none;
  const bool complete = fs::exists(path_ + "/hash.json", none) && is_model_directory(path_ + "/model");
  exit_code_ = 0;
  message_.clear();
  if (!is_run_directory(path_)) {
    phase_ = RunPhase::absent;
  } else if (state == "running") {
    const double silent_s = now_s - changed_s_, every_s = value_of(live_, "every_s", kLiveEverySeconds);
    phase_ = is_gone(live_, lock, silent_s, every_s) ? RunPhase::killed : RunPhase::running;
  } else if (is_owned(owner, lock) && !(complete && state == "complete")) {
    phase_ = RunPhase::running;  // being resumed, or run by a version without live.json
  } else if (state == "complete" || (state.empty() && complete)) {
    phase_ = RunPhase::complete;
  } else if (state == "stopped" || state == "failed") {
    phase_ = state == "stopped" ? RunPhase::stopped : RunPhase::failed;
    exit_code_ = value_of(live_, "exit_code", 1);
    message_ = value_of<std::string>(live_, "message", "");
  } else if (lock == LockState::absent) {  // only a process that ends by itself removes it
    phase_ = RunPhase::stopped;
    exit_code_ = 1;
    message_ = "the run ended before its last step without a message; " + advice();
  } else {
    phase_ = RunPhase::killed;
  }
  if (phase_ == RunPhase::killed) {
    exit_code_ = kKilled;
    message_ = "the run's process is gone without a message; " + advice();
  }
}

std::string RunFollower::advice() const {
  try {
    const auto checkpoints = list_checkpoints(path_);
    if (checkpoints.empty()) return "it saved no checkpoint, so start it again";
    return fmt::format("its last checkpoint is of step {}: resume with '{}'", checkpoints.back().first, go_on_);
  } catch (const Error&) {
    return fmt::format("if it saved a checkpoint, resume with '{}'", go_on_);
  }
}

void RunFollower::read_steps(const TellEvent& tell) {
  LineTail::News news = metrics_.poll();
  std::vector<RunStep>& steps = data_.history.steps;
  std::vector<RunStep> before;
  if (news.replaced) {
    before.swap(steps);
    // Those of metrics.jsonl are read again below, those of eval.jsonl by read_others().
    data_.history.evaluations.clear();
    evaluations_ = LineTail(evaluations_.path());
  }
  struct Row {
    const std::string& line;
    bool is_step;
    size_t index;  // of the step or the evaluation
  };
  std::vector<Row> rows;
  for (const std::string& line : news.lines) {
    const size_t had = steps.size();
    try {
      add_to_history(line, HistoryFile::metrics, "", data_.history);
    } catch (const Error&) {
      ++damaged_;
      continue;
    }
    const bool is_step = steps.size() > had;
    if (is_step) keep_peaks(steps.back(), data_.memory);
    rows.push_back({line, is_step, is_step ? had : data_.history.evaluations.size() - 1});
  }
  // A replaced file may be a copy of the old one that has grown. Its first rows are then known already.
  size_t kept = 0;
  while (kept < before.size() && kept < steps.size() && same(before[kept], steps[kept])) ++kept;
  if (kept < before.size()) {
    ++times_back_;
    const int64_t step = kept == 0 ? 0 : before[kept - 1].step;
    std::erase_if(told_, [step](const auto& told) { return told.second > step; });
    if (tell) tell({{"event", "back"}, {"step", step}});
  }
  for (const auto& [line, is_step, index] : rows) {
    const bool known = is_step ? index < kept : !told_.emplace(line, data_.history.evaluations[index].step).second;
    if (known || !tell) continue;
    RunEvent event = json::parse(line);
    event["event"] = is_step ? "step" : "evaluation";
    tell(std::move(event));
  }
}

void RunFollower::read_others(const TellEvent& tell) {
  RunHistory& history = data_.history;
  struct Other {
    LineTail& tail;
    HistoryFile file;
    const char* event;
  };
  for (const Other& other :
       {Other{evaluations_, HistoryFile::evaluations, "evaluation"}, Other{samples_, HistoryFile::samples, "sample"}}) {
    const LineTail::News news = other.tail.poll();
    if (news.replaced && other.file == HistoryFile::samples) history.samples.clear();
    if (news.replaced && other.file == HistoryFile::evaluations) history.evaluations.clear();
    for (const std::string& line : news.lines) {
      try {
        add_to_history(line, other.file, "", history);
      } catch (const Error&) {
        ++damaged_;
        continue;
      }
      json object = json::parse(line);
      // Skips lines reported before the file was rewritten.
      if (!told_.emplace(line, object.at("step").get<int64_t>()).second) continue;
      if (!tell) continue;
      object["event"] = other.event;
      tell(std::move(object));
    }
  }
}

void RunFollower::tell_state(ReportData& data) const {
  data.state = phase_name(phase_);
  data.why.clear();
  if (has_ended(phase_) && phase_ != RunPhase::complete)
    data.why = fmt::format("exit code {}{}{}", exit_code_, message_.empty() ? "" : ": ", message_);
}

std::string RunFollower::live_text(const char* key) const { return value_of<std::string>(live_, key, ""); }

double RunFollower::seconds_left() const {
  const std::vector<RunStep>& steps = data_.history.steps;
  if (steps.empty() || data_.steps <= 0 || phase_ != RunPhase::running) return -1;
  return data_.history.step_seconds() * static_cast<double>(std::max<int64_t>(0, data_.steps - steps.back().step));
}

json RunFollower::state() const {
  const RunHistory& h = data_.history;
  const RunEvaluation* best = h.best_evaluation();
  const double left = seconds_left();
  return {{"run", path_},
          {"state", phase_name(phase_)},
          {"exit_code", has_ended(phase_) ? json(exit_code_) : json()},
          {"message", message_},
          {"step", h.steps.empty() ? 0 : h.steps.back().step},
          {"steps", data_.steps},
          {"loss", h.steps.empty() ? json() : json(h.steps.back().loss)},
          {"evaluation_loss", h.evaluations.empty() ? json() : json(h.evaluations.back().loss)},
          {"best_evaluation_loss", best ? json(best->loss) : json()},
          {"tokens", h.tokens()},
          {"tokens_per_s", h.tokens_per_s()},
          {"seconds", h.seconds()},
          {"seconds_left", left < 0 ? json() : json(left)},
          {"doing", phase_ == RunPhase::running ? live_text("doing") : ""},
          {"memory", live_.is_null() ? json() : live_.value("memory", json())},
          {"damaged_lines", damaged_}};
}

}  // namespace megatrain
