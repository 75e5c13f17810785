// The memory limit of this process's control groups: that of a container or a job. The kernel kills a process that
// exceeds it, whatever /proc/meminfo says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct CgroupMemory {
  int64_t limit_bytes = 0;
  int64_t available_bytes = 0;  // up to the limit; droppable file pages count as available
};

// The tightest limit, of cgroup version 1 or 2; nothing if memory is not limited. `root` replaces "/".
std::optional<CgroupMemory> cgroup_memory(const std::string& root = "/");

}  // namespace megatrain
