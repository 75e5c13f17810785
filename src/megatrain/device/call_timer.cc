#include "megatrain/device/call_timer.h"

#include <algorithm>
#include <vector>

namespace megatrain {

CallTimer::CallTimer(Device& device, Stream& stream)
    : device_(device), stream_(stream), from_(device.make_event()), to_(device.make_event()) {}

double CallTimer::once_s(const std::function<void()>& call, int calls) {
  stream_.record(*from_);
  for (int i = 0; i < calls; ++i) call();
  stream_.record(*to_);
  to_->block();
  return device_.elapsed_s(*from_, *to_);
}

double CallTimer::median_s(const std::function<void()>& call, int samples) {
  constexpr double kSample = 500e-6;
  constexpr int kMostCalls = 20;
  once_s(call);
  const double first = once_s(call);
  const int calls =
      first >= kSample ? 1 : static_cast<int>(std::min<double>(kMostCalls, kSample / std::max(first, 1e-9) + 1));
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(once_s(call, calls) / calls);
  const auto middle = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace megatrain
