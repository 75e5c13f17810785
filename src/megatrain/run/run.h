// A complete run, as `megatrain train` does it: from a configuration to RUN/model.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "megatrain/config/config.h"
#include "megatrain/run/metrics.h"

namespace megatrain {

struct RunResult {
  std::string run_dir;
  int64_t step = 0;                 // the last one completed
  std::optional<double> last_loss;  // of the last step this process completed
  std::optional<double> eval_loss;  // of the last evaluation
  int64_t best_step = 0;            // step with the lowest evaluation loss
  std::string state_hash;
  int stopped_by = 0;      // the signal; 0: the run is complete
  bool resumable = false;  // it was stopped and has a checkpoint to resume from
};

struct RunHooks {
  std::function<void(const StepMetrics&)> on_step;   // after each step
  const volatile std::sig_atomic_t* stop = nullptr;  // set to a signal's number to save and stop
  std::function<bool()> take_save_wish;  // returns true once for each request to save after the current step
  // Called with the cause when the run hangs; ends the process (StallWatch).
  std::function<void(const std::string&)> on_stall;
};

RunResult run_training(const TrainConfig& config, const RunHooks& hooks);

}  // namespace megatrain
