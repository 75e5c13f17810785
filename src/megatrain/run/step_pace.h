// How long a step takes at present, for the time that a run will still take.
#pragma once

#include <cstdint>
#include <deque>

namespace megatrain {

// The median of the last steps' own times, and the mean of the pauses between all of them. So a step in which the
// process was suspended counts for nothing, and a checkpoint for what it is: one in many steps. The first step, which
// warms up, counts only while it is alone.
class StepPace {
 public:
  // A step's time without the pause before it (a checkpoint, samples, a dump), and that pause.
  void add(double own_s, double paused_s);
  double seconds() const;  // of a step with its share of the pauses; 0: there is no step yet

 private:
  std::deque<double> recent_;  // own times
  int64_t steps_ = 0;
  double paused_s_ = 0;  // of all
};

}  // namespace megatrain
