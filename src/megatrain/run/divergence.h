// Detects divergence: the loss rises far above that of guessing, ln(vocabulary), after it had been lower.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace megatrain {

class DivergenceWatch {
 public:
  explicit DivergenceWatch(int64_t vocab);

  // Whether to report this step's loss: three steps in a row are far above guessing, or one is very far above. It is
  // reported once, and again when the loss has grown tenfold since.
  bool look(double loss);

  // "the loss of step 7 is 2.578e+05, far above the 11.9 of random guessing; the lowest before was 8.3". Call it after
  // look().
  std::string sentence(int64_t step, double loss) const;

  int64_t high_steps() const { return high_; }  // how many in a row, up to the last one
  double lowest() const { return lowest_; }     // of all steps so far
  double guessing() const { return guessing_; }

 private:
  double guessing_;
  double lowest_ = std::numeric_limits<double>::infinity();
  double told_ = 0;   // the loss last reported; 0: none
  int64_t high_ = 0;  // number of high steps in a row
};

}  // namespace megatrain
