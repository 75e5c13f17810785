// A whole run, as `megatrain train` does it: from a configuration to RUN/model.
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
  int64_t step = 0;                 // the last one done
  std::optional<double> last_loss;  // of the last step that this process did
  std::optional<double> eval_loss;  // the last one
  int64_t best_step = 0;            // of the lowest evaluation loss
  std::string state_hash;
  int stopped_by = 0;      // the signal, 0: the run is complete
  bool resumable = false;  // it was stopped, and there is a checkpoint to go on from
};

struct RunHooks {
  std::function<void(const StepMetrics&)> on_step;   // after each step
  const volatile std::sig_atomic_t* stop = nullptr;  // becomes the number of a signal: save and stop
  std::function<bool()> take_save_wish;              // true once when a checkpoint is wanted after the running step
  std::function<void(const std::string&)> on_stall;  // the run hangs, and why; ends the process (StallWatch)
};

RunResult run_training(const TrainConfig& config, const RunHooks& hooks);

}  // namespace megatrain
