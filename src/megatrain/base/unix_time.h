// The time of day, for files that other processes and machines read. Durations are measured with clock.h.
#pragma once

#include <chrono>

namespace megatrain {

inline double unix_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace megatrain
