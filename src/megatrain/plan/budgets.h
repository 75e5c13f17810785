// The memory that a plan may use.
#pragma once

#include <cstdint>

namespace megatrain {

struct Budgets {
  int64_t gpu_bytes = 0;  // device memory, including the driver's own share
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;       // 0: nothing may live on disk
  bool device_is_host = false;  // the CPU is the device, so gpu_bytes are host memory too
  // All state lives on the host; at most kVisitingBytes of it are on the device at any time.
  bool state_on_host = false;
  // No weights that may stay in the model's files live in host memory. false: they do while host memory holds them.
  bool base_in_files = false;
};
inline constexpr int64_t kVisitingBytes = int64_t{8} << 30;

}  // namespace megatrain
