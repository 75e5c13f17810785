// Times work on a stream with the device's own events.
#pragma once

#include <functional>
#include <memory>

#include "megatrain/device/device.h"

namespace megatrain {

class CallTimer {
 public:
  CallTimer(Device& device, Stream& stream);

  // Seconds of one call, which enqueues work on the stream. Makes one call to warm up, then takes the median of
  // `samples`. Short calls are timed in groups, so that the gap between launches does not count.
  double median_s(const std::function<void()>& call, int samples);

  // Seconds of `calls` consecutive calls.
  double once_s(const std::function<void()>& call, int calls = 1);

 private:
  Device& device_;
  Stream& stream_;
  std::unique_ptr<Event> from_, to_;
};

}  // namespace megatrain
