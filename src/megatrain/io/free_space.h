// How much space is left on the file system that a path is on, or will be on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct FreeSpace {
  uint64_t device = 0;  // equal for paths on one file system
  int64_t bytes = 0;    // free for this user
};

// Looks at the nearest existing folder above the path. Empty if the system does not say, as for file systems without a
// size.
std::optional<FreeSpace> free_space(const std::string& path);

}  // namespace megatrain
