// Everything a run logs as it trains: RUN/metrics.jsonl, the same for TensorBoard in RUN/tensorboard, and
// RUN/lanes.json, the actions of one step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/engine/trace.h"
#include "megatrain/io/line_file.h"
#include "megatrain/run/metrics.h"
#include "megatrain/run/tensorboard.h"

namespace megatrain {

class RunLog {
 public:
  // `step` is the last step done, `steps` the length of the run. If `resumed`, records of later steps are dropped from
  // metrics.jsonl, eval.jsonl and samples.jsonl, and TensorBoard is told to ignore its own. A metrics.jsonl that lacks
  // earlier steps gets a warning.
  RunLog(const std::string& run_dir, int64_t step, int64_t steps, bool resumed);

  void step(const StepMetrics& metrics);
  // Adds a point to one more TensorBoard curve, such as "eval/loss".
  void add_scalar(std::string_view tag, int64_t step, double value);

  // lanes.json shows the third step after the start or the resume, when everything is warm, or the run's last step.
  // Call Device::mark_clock() before that step.
  bool shows_lanes(int64_t step) const { return step == lanes_step_; }
  void lanes(int64_t step, const std::vector<Span>& spans);

 private:
  std::string run_dir_;
  int64_t lanes_step_ = 0;
  std::optional<LineFile> metrics_;
  EventFile events_;
};

}  // namespace megatrain
