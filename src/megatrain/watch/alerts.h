// Detects what a person wants to be alerted to: loss spikes, non-finite values, runs that stall or end badly, a full
// disk or memory, a missing run directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/run/divergence.h"
#include "megatrain/run/rising_loss.h"
#include "megatrain/watch/run_follower.h"

namespace megatrain {

struct AlertLimits {
  double spike = 1.5;  // factor over the median loss of the last 50 steps; 0: never
  double stall_s = 0;  // seconds without anything new; 0: ten times the median step, at least two minutes
  int64_t disk_bytes = int64_t{2} << 30;  // least free bytes in the run directory
  double memory_share = 0.03;             // least available share of host memory
};

struct Alert {
  // "loss_spike", "divergence", "eval_rise", "non_finite", "stall", "disk", "memory", "gone", "ended"
  std::string kind;
  int64_t step = 0;
  std::string message;
  bool lasting = false;  // the condition holds now, whenever it began
};
nlohmann::json to_json(const Alert& alert, const std::string& run);

class Alerts {
 public:
  explicit Alerts(AlertLimits limits) : limits_(limits) {}

  // Alerts since the last call. `disk_free` is in bytes, if known. A lasting condition is reported once, and again only
  // after it was over.
  std::vector<Alert> look(const RunFollower& run, double now_s, std::optional<int64_t> disk_free);

 private:
  void look_at_steps(const RunFollower& run, std::vector<Alert>& alerts);
  void take_evaluations_back(const RunFollower& run);
  void look_at_evaluations(const RunFollower& run, std::vector<Alert>& alerts);
  void look_at_end(const RunFollower& run, std::vector<Alert>& alerts);
  void look_at_pace(const RunFollower& run, double now_s, std::vector<Alert>& alerts);
  void raise(bool now, bool& before, Alert alert, std::vector<Alert>& alerts);

  AlertLimits limits_;
  size_t looked_ = 0;  // steps examined so far
  int64_t times_back_ = 0, last_spike_ = -1;
  std::optional<DivergenceWatch> divergence_;  // set once the vocabulary is known
  size_t evaluated_ = 0;                       // evaluations examined so far
  RisingLoss rising_;
  bool there_ = false;  // the run directory has existed
  bool ended_ = false, stalled_ = false, disk_ = false, memory_ = false, gone_ = false;
  std::string activity_;
  double activity_s_ = 0;
};

// Bytes that a user can still write at `path`; empty if unknown.
std::optional<int64_t> disk_free_at(const std::string& path);

}  // namespace megatrain
