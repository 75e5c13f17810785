// How long work on a stream takes, by the device's own events.
#pragma once

#include <functional>
#include <memory>

#include "megatrain/device/device.h"

namespace megatrain {

class CallTimer {
 public:
  CallTimer(Device& device, Stream& stream);

  // Seconds of one call, which enqueues work on the stream: one call to warm up, then the median of `samples`. Short
  // calls are timed several at once, so that the time between two launches does not count.
  double median_s(const std::function<void()>& call, int samples);

  // Seconds of `calls` calls, one after another.
  double once_s(const std::function<void()>& call, int calls = 1);

 private:
  Device& device_;
  Stream& stream_;
  std::unique_ptr<Event> from_, to_;
};

}  // namespace megatrain
