// The memory limit of the control groups this process is in: a container's, a job's. The kernel kills what goes beyond
// it, whatever /proc/meminfo says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct CgroupMemory {
  int64_t limit_bytes = 0;
  int64_t available_bytes = 0;  // below the limit; file pages that can be dropped count as available
};

// The tightest of them, of version 1 or 2; nothing where none limits memory. `root` stands for "/".
std::optional<CgroupMemory> cgroup_memory(const std::string& root = "/");

}  // namespace megatrain
