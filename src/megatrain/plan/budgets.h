// The memory that a plan may take.
#pragma once

#include <cstdint>

namespace megatrain {

struct Budgets {
  int64_t gpu_bytes = 0;  // of the device, driver's own share included
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;       // 0: nothing lives on disk
  bool device_is_host = false;  // gpu_bytes are host memory too: the CPU computes
  bool state_on_host = false;   // all state lives on the host; at most kVisitingBytes of it are on the device at a time
};
inline constexpr int64_t kVisitingBytes = int64_t{8} << 30;

}  // namespace megatrain
