#include "megatrain/watch/alerts.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr size_t kNeighbours = 50;    // number of previous steps that a spike is measured against
constexpr size_t kFewest = 10;        // the fewest of them needed
constexpr int64_t kSpikesApart = 20;  // steps
constexpr double kDeviations = 6;
constexpr double kLeastRise = 0.1;   // less is noise when the loss is near zero
constexpr double kLeastStall = 120;  // seconds
constexpr double kStallSteps = 10;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Available and total bytes; -1 if unknown.
std::pair<double, double> host_memory_of(const json& live) {
  const json* at = &live;
  for (const char* key : {"memory", "host"}) {
    if (!at->is_object() || !at->contains(key)) return {-1, 0};
    at = &at->at(key);
  }
  const auto number = [at](const char* key) {
    return at->is_object() && at->contains(key) && at->at(key).is_number() ? at->at(key).get<double>() : -1;
  };
  return {number("available"), number("limit")};
}

}  // namespace

json to_json(const Alert& alert, const std::string& run) {
  return {{"event", "alert"}, {"run", run}, {"alert", alert.kind}, {"step", alert.step}, {"message", alert.message}};
}

std::vector<Alert> Alerts::look(const RunFollower& run, double now_s, std::optional<int64_t> disk_free) {
  std::vector<Alert> alerts;
  if (run.times_back() != times_back_) {
    times_back_ = run.times_back();
    looked_ = std::min(looked_, run.data().history.steps.size());
    last_spike_ = -1;
    divergence_.reset();
    take_evaluations_back(run);
  }
  if (run.data().history.evaluations.size() < evaluated_) take_evaluations_back(run);
  if (!divergence_ && run.data().vocab > 0) divergence_.emplace(run.data().vocab);
  look_at_steps(run, alerts);
  look_at_evaluations(run, alerts);
  look_at_pace(run, now_s, alerts);
  const std::vector<RunStep>& steps = run.data().history.steps;
  const int64_t step = steps.empty() ? 0 : steps.back().step;
  const bool goes = run.phase() == RunPhase::running;
  raise(goes && disk_free && *disk_free < limits_.disk_bytes, disk_,
        {"disk", step,
         fmt::format("only {} are free on the disk of the run directory", format_bytes(disk_free.value_or(0)))},
        alerts);
  const auto [available, limit] = host_memory_of(run.live());
  raise(goes && available >= 0 && available < limits_.memory_share * limit, memory_,
        {"memory", step,
         fmt::format("only {} of {} host memory are available", format_bytes(static_cast<int64_t>(available)),
                     format_bytes(static_cast<int64_t>(limit)))},
        alerts);
  there_ = there_ || run.phase() != RunPhase::absent;
  raise(there_ && run.phase() == RunPhase::absent, gone_,
        {"gone", step, "the run directory is gone: it was moved or removed, or its file system was unmounted"}, alerts);
  look_at_end(run, alerts);
  return alerts;
}

void Alerts::raise(bool now, bool& before, Alert alert, std::vector<Alert>& alerts) {
  alert.lasting = true;
  if (now && !before) alerts.push_back(std::move(alert));
  before = now;
}

void Alerts::look_at_steps(const RunFollower& run, std::vector<Alert>& alerts) {
  const std::vector<RunStep>& steps = run.data().history.steps;
  for (; looked_ < steps.size(); ++looked_) {
    const RunStep& step = steps[looked_];
    if (!std::isfinite(step.loss) || !std::isfinite(step.grad_norm)) {
      alerts.push_back({"non_finite", step.step, fmt::format("the loss of step {} is not finite", step.step)});
      continue;
    }
    if (divergence_ && divergence_->look(step.loss))
      alerts.push_back(
          {"divergence", step.step, divergence_->sentence(step.step, step.loss) + ": the run is diverging"});
    if (limits_.spike <= 0 || looked_ < kFewest || step.step < last_spike_ + kSpikesApart) continue;
    std::vector<double> near;
    for (size_t i = looked_ - std::min(looked_, kNeighbours); i < looked_; ++i) near.push_back(steps[i].loss);
    const double middle = median(near);
    for (double& loss : near) loss = std::abs(loss - middle);
    const double deviation = 1.4826 * median(near);
    if (step.loss <= limits_.spike * middle || step.loss <= middle + kDeviations * deviation ||
        step.loss <= middle + kLeastRise)
      continue;
    last_spike_ = step.step;
    alerts.push_back({"loss_spike", step.step,
                      fmt::format("the loss of step {} is {:.4g}, {:.3g} times the median of the {} before it",
                                  step.step, step.loss, step.loss / middle, near.size())});
  }
}

// Those that were examined and are still valid; they are not reported again.
void Alerts::take_evaluations_back(const RunFollower& run) {
  const std::vector<RunEvaluation>& evaluations = run.data().history.evaluations;
  evaluated_ = std::min(evaluated_, evaluations.size());
  rising_ = {};
  for (size_t i = 0; i < evaluated_; ++i) rising_.look(evaluations[i].step, evaluations[i].loss);
}

void Alerts::look_at_evaluations(const RunFollower& run, std::vector<Alert>& alerts) {
  const std::vector<RunEvaluation>& evaluations = run.data().history.evaluations;
  for (; evaluated_ < evaluations.size(); ++evaluated_) {
    const RunEvaluation& evaluation = evaluations[evaluated_];
    if (rising_.look(evaluation.step, evaluation.loss))
      alerts.push_back({"eval_rise", evaluation.step, rising_.sentence()});
  }
}

void Alerts::look_at_end(const RunFollower& run, std::vector<Alert>& alerts) {
  // The end is reported once, even if the directory was away in the meantime.
  if (run.phase() == RunPhase::absent) return;
  const bool badly = run.phase() == RunPhase::failed || run.phase() == RunPhase::killed;
  if (badly && !ended_) {
    const std::vector<RunStep>& steps = run.data().history.steps;
    const bool values = run.exit_code() == static_cast<int>(ExitCode::non_finite);
    alerts.push_back(
        {values ? "non_finite" : "ended", steps.empty() ? 0 : steps.back().step,
         fmt::format("the run {}: {}", run.phase() == RunPhase::failed ? "has failed" : "was killed", run.message())});
  }
  ended_ = badly;
}

void Alerts::look_at_pace(const RunFollower& run, double now_s, std::vector<Alert>& alerts) {
  const std::vector<RunStep>& steps = run.data().history.steps;
  // Any change in what the run does, or in what its lanes do, counts as progress.
  const std::string doing = run.live_text("doing");
  const std::string activity = fmt::format("{} {} {} {} {}", steps.size(), run.times_back(),
                                           run.phase() == RunPhase::running, doing, run.live_text("running"));
  if (activity != activity_ || activity_s_ == 0) {
    activity_ = activity;
    activity_s_ = now_s;
  }
  double limit = limits_.stall_s;
  if (limit == 0) {
    std::vector<double> seconds;
    for (size_t i = steps.size() - std::min(steps.size(), kNeighbours); i < steps.size(); ++i)
      seconds.push_back(steps[i].seconds);
    limit = std::max(kLeastStall, seconds.empty() ? 0 : kStallSteps * median(seconds));
  }
  const double still_s = now_s - activity_s_;
  raise(run.phase() == RunPhase::running && still_s > limit, stalled_,
        {"stall", steps.empty() ? 0 : steps.back().step,
         fmt::format("nothing new for {}{}{}", format_duration(still_s),
                     steps.empty() ? "" : fmt::format(" since step {}", steps.back().step),
                     doing.empty() ? "" : "; the run is in " + doing)},
        alerts);
}

std::optional<int64_t> disk_free_at(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return {};
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

}  // namespace megatrain
