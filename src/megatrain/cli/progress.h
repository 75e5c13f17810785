// The line that `megatrain train` prints for a step: how far the run is, how it goes, and when it will be over.
#pragma once

#include <string>

#include "megatrain/run/metrics.h"

namespace megatrain {

// Seconds a step takes now: a mean in which a step weighs less the older it is. The first step of a process, which
// warms up, counts only while it is alone.
class StepClock {
 public:
  void add(double seconds);
  double seconds() const { return mean_; }

 private:
  int64_t steps_ = 0;
  double mean_ = 0;
};

class Progress {
 public:
  ~Progress();

  // Writes the line of a step. On a terminal it is rewritten; one stays every few seconds, and the first and the last.
  void show(const StepMetrics& metrics);

  // What the line says.
  std::vector<LogField> fields(const StepMetrics& metrics);

 private:
  StepClock clock_;
  double stayed_s_ = 0;  // when the last line was left standing
};

}  // namespace megatrain
