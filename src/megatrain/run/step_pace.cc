#include "megatrain/run/step_pace.h"

#include <algorithm>
#include <vector>

namespace megatrain {

void StepPace::add(double own_s, double paused_s) {
  constexpr size_t kWindow = 21;  // steps
  if (steps_ == 1 || recent_.size() == kWindow) recent_.pop_front();
  recent_.push_back(own_s);
  paused_s_ += paused_s;
  ++steps_;
}

double StepPace::seconds() const {
  if (recent_.empty()) return 0;
  std::vector<double> own(recent_.begin(), recent_.end());
  const auto middle = own.begin() + static_cast<std::ptrdiff_t>((own.size() - 1) / 2);
  std::nth_element(own.begin(), middle, own.end());
  return *middle + paused_s_ / static_cast<double>(steps_);
}

}  // namespace megatrain
