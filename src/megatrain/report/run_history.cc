#include "megatrain/report/run_history.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"
#include "megatrain/io/line_reader.h"
#include "megatrain/io/object_scan.h"
#include "megatrain/io/replace.h"
#include "megatrain/run/step_pace.h"

namespace megatrain {

namespace {

using nlohmann::json;

// One JSON object of a line; missing fields are refused by name.
class Line {
 public:
  Line(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail_input(where_ + " is not a JSON object");
  }
  bool has(const char* key) const { return object_.contains(key); }
  double number(const char* key) const { return value(key, &json::is_number, "a number").get<double>(); }
  int64_t integer(const char* key) const {
    return value(key, &json::is_number_integer, "a whole number").get<int64_t>();
  }
  std::string text(const char* key) const { return value(key, &json::is_string, "a string").get<std::string>(); }

 private:
  const json& value(const char* key, bool (json::*is)() const noexcept, const char* what) const {
    if (!object_.contains(key) || !(object_.at(key).*is)())
      fail_input(fmt::format("{} has no \"{}\", or it is not {}", where_, key, what));
    return object_.at(key);
  }

  const json& object_;
  std::string where_;
};

// Reads a step as the trainer writes it, without building JSON: a long run has hundreds of thousands of steps, and only
// a few values of each are needed. If it returns false, nothing was added, and the parser has to read the line.
bool add_step(std::string_view line, RunHistory& history) {
  enum Key {
    step,
    steps,
    eval_loss,
    bound_by,
    loss,
    grad_norm,
    lr,
    seconds,
    tokens_per_s,
    paused_s,
    tokens,
    trained_tokens,
    hbm_peak,
    host_peak,
    count
  };
  static constexpr std::array<std::string_view, count> kKeys = {
      "step",    "steps",        "eval_loss", "bound_by", "loss",           "grad_norm", "lr",
      "seconds", "tokens_per_s", "paused_s",  "tokens",   "trained_tokens", "hbm_peak",  "host_peak"};
  std::array<std::string_view, count> found;
  if (!scan_object(line, kKeys, found) || !found[eval_loss].empty()) return false;
  bool known = true;
  const auto take = [&known](const auto& value, auto& into) {
    known = known && value;
    if (value) into = *value;
  };
  RunStep read;
  int64_t planned = history.planned_steps;
  for (const auto& [key, into] : {std::pair{step, &read.step},
                                  {tokens, &read.tokens},
                                  {trained_tokens, &read.trained_tokens},
                                  {hbm_peak, &read.hbm_peak},
                                  {host_peak, &read.host_peak}})
    take(scanned_integer(found[key]), *into);
  for (const auto& [key, into] : {std::pair{loss, &read.loss},
                                  {grad_norm, &read.grad_norm},
                                  {lr, &read.lr},
                                  {seconds, &read.seconds},
                                  {tokens_per_s, &read.tokens_per_s}})
    take(scanned_number(found[key]), *into);
  const std::optional<std::string_view> bound = scanned_text(found[bound_by]);
  if (!found[paused_s].empty()) take(scanned_number(found[paused_s]), read.paused_s);
  if (!found[steps].empty()) take(scanned_integer(found[steps]), planned);
  if (!known || !bound) return false;
  history.planned_steps = planned;
  history.bound_by = *bound;
  history.steps.push_back(read);
  return true;
}

void add_parsed(const json& object, HistoryFile file, const std::string& where, RunHistory& history) {
  const Line line(object, where);
  if (file == HistoryFile::evaluations) {
    history.evaluations.push_back({line.integer("step"), line.number("loss")});
  } else if (file == HistoryFile::samples) {
    history.samples.push_back({line.integer("step"), line.text("prompt"), line.text("text")});
  } else if (line.has("eval_loss")) {
    history.evaluations.push_back({line.integer("step"), line.number("eval_loss")});
  } else {
    if (line.has("steps")) history.planned_steps = line.integer("steps");
    std::string bound_by = line.text("bound_by");
    history.steps.push_back({.step = line.integer("step"),
                             .loss = line.number("loss"),
                             .grad_norm = line.number("grad_norm"),
                             .lr = line.number("lr"),
                             .seconds = line.number("seconds"),
                             .tokens_per_s = line.number("tokens_per_s"),
                             .paused_s = line.has("paused_s") ? line.number("paused_s") : 0,  // missing in older runs
                             .tokens = line.integer("tokens"),
                             .trained_tokens = line.integer("trained_tokens"),
                             .hbm_peak = line.integer("hbm_peak"),
                             .host_peak = line.integer("host_peak")});
    history.bound_by = std::move(bound_by);
  }
}

void read_lines(const std::string& run_dir, const char* name, HistoryFile file, RunHistory& history) {
  const std::string path = run_dir + "/" + name;
  if (!can_read(path)) return;
  std::error_code none;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, none));
  for (LineReader line(path); line.next() && line.ended();) {  // a line without its end is still being written
    try {
      add_to_history(line.line(), file, fmt::format("{}:{}", name, line.number()), history);
    } catch (const Error& error) {
      history.damaged.push_back(fmt::format("{}; the line is skipped", error.what()));
    }
    // Estimates the number of lines from the first one, so that a long run's steps are not copied as the vector grows.
    if (history.steps.size() == 1 && !none)
      history.steps.reserve(static_cast<size_t>(bytes / std::max<int64_t>(line.bytes(), 1)) + 1);
  }
}

}  // namespace

void add_to_history(std::string_view line, HistoryFile file, const std::string& where, RunHistory& history) {
  if (file == HistoryFile::metrics && add_step(line, history)) return;
  add_parsed(json::parse(line, nullptr, false), file, where, history);
}

RunHistory read_history(const std::string& run_dir) {
  RunHistory history;
  read_lines(run_dir, "metrics.jsonl", HistoryFile::metrics, history);
  read_lines(run_dir, "eval.jsonl", HistoryFile::evaluations, history);
  read_lines(run_dir, "samples.jsonl", HistoryFile::samples, history);
  const auto by_step = [](const auto& a, const auto& b) { return a.step < b.step; };
  if (!std::is_sorted(history.steps.begin(), history.steps.end(), by_step))
    std::stable_sort(history.steps.begin(), history.steps.end(), by_step);
  std::stable_sort(history.evaluations.begin(), history.evaluations.end(), by_step);
  return history;
}

double RunHistory::seconds() const {
  double sum = 0;
  for (const RunStep& step : steps) sum += step.seconds;
  return sum;
}

double RunHistory::step_seconds() const {
  StepPace pace;
  for (const RunStep& step : steps) pace.add(step.seconds - step.paused_s, step.paused_s);
  return pace.seconds();
}

int64_t RunHistory::tokens() const {
  int64_t sum = 0;
  for (const RunStep& step : steps) sum += step.tokens;
  return sum;
}

double RunHistory::tokens_per_s() const {
  std::vector<double> speeds;
  for (const RunStep& step : steps) speeds.push_back(step.tokens_per_s);
  if (speeds.size() > 1) speeds.erase(speeds.begin());
  if (speeds.empty()) return 0;
  const auto middle = speeds.begin() + static_cast<int64_t>(speeds.size() / 2);
  std::nth_element(speeds.begin(), middle, speeds.end());
  return *middle;
}

const RunEvaluation* RunHistory::best_evaluation() const {
  const auto best = std::min_element(evaluations.begin(), evaluations.end(),
                                     [](const RunEvaluation& a, const RunEvaluation& b) { return a.loss < b.loss; });
  return best == evaluations.end() ? nullptr : &*best;
}

}  // namespace megatrain
