// Detects an evaluation loss that rises: the model fits what it is trained on ever closer, and other data less.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {

class RisingLoss {
 public:
  // Takes the next evaluation. Whether to report it: the loss rose in the last two evaluations and is clearly above the
  // lowest, or it is far above the lowest. It is reported once, and again only after a new lowest loss.
  bool look(int64_t step, double loss);

  // The evaluations from the lowest on: "the evaluation loss rises: 2.1900 at step 40 (the lowest), then 2.2500 at step
  // 60 and 2.3100 at step 80".
  std::string sentence() const;

  int64_t lowest_step() const { return since_lowest_.empty() ? -1 : since_lowest_.front().step; }

 private:
  struct Evaluated {
    int64_t step = 0;
    double loss = 0;
  };
  std::vector<Evaluated> since_lowest_;  // the lowest first; of later ones the last two
  bool told_ = false;
};

}  // namespace megatrain
