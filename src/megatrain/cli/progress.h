// The line that `megatrain train` prints for a step: progress, metrics and remaining time.
#pragma once

#include <vector>

#include "megatrain/run/metrics.h"
#include "megatrain/run/step_pace.h"

namespace megatrain {

class Progress {
 public:
  ~Progress();

  // Prints the line of a step. A terminal shows one line that is rewritten; the first, the last and one every few
  // seconds stay.
  void show(const StepMetrics& metrics);

  // The contents of that line.
  std::vector<LogField> fields(const StepMetrics& metrics);

 private:
  StepPace pace_;
  double stayed_s_ = 0;  // when a line last stayed on the terminal
};

}  // namespace megatrain
