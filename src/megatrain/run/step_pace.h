// How long a step takes at present, to estimate the remaining time of a run.
#pragma once

#include <cstdint>
#include <deque>

namespace megatrain {

// The median of the recent steps' own times, plus the mean of all pauses. A step during which the process was suspended
// therefore does not count, and a checkpoint is spread over many steps. The first step, which warms up, counts only
// until there is another.
class StepPace {
 public:
  // `own_s` is the step's time without the pause before it (a checkpoint, samples, a dump); `paused_s` is that pause.
  void add(double own_s, double paused_s);
  double seconds() const;  // of a step with its share of the pauses; 0: no step yet

 private:
  std::deque<double> recent_;  // own times
  int64_t steps_ = 0;
  double paused_s_ = 0;  // sum of all pauses
};

}  // namespace megatrain
