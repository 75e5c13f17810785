// The line that `megatrain train` prints for a step: how far the run is, how it goes, and when it will be over.
#pragma once

#include <vector>

#include "megatrain/run/metrics.h"
#include "megatrain/run/step_pace.h"

namespace megatrain {

class Progress {
 public:
  ~Progress();

  // Writes the line of a step. On a terminal it is rewritten; one stays every few seconds, and the first and the last.
  void show(const StepMetrics& metrics);

  // What the line says.
  std::vector<LogField> fields(const StepMetrics& metrics);

 private:
  StepPace pace_;
  double stayed_s_ = 0;  // when the last line was left standing
};

}  // namespace megatrain
