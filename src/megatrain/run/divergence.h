// Whether a run diverges: its loss is far above that of guessing, ln(vocabulary), after it had been lower.
#pragma once

#include <cstdint>
#include <limits>

namespace megatrain {

class DivergenceWatch {
 public:
  explicit DivergenceWatch(int64_t vocab);

  // Whether the loss of this step is to be told: three in a row are far above that of guessing, or one is very far. It
  // is told once, and again where it has become ten times that.
  bool look(double loss);

  double lowest() const { return lowest_; }  // of all steps looked at
  double guessing() const { return guessing_; }

 private:
  double guessing_;
  double lowest_ = std::numeric_limits<double>::infinity();
  double told_ = 0;   // 0: never
  int64_t high_ = 0;  // steps in a row
};

}  // namespace megatrain
