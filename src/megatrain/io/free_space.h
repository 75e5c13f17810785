// How much room is left on the file system that a path lies on, or will lie on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

struct FreeSpace {
  uint64_t device = 0;  // equal for paths on one file system
  int64_t bytes = 0;    // free for this user
};

// Of the nearest folder above the path that is there. Nothing where the system does not say, as of file systems without
// a size.
std::optional<FreeSpace> free_space(const std::string& path);

}  // namespace megatrain
