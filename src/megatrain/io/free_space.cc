#include "megatrain/io/free_space.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <filesystem>

namespace megatrain {

std::optional<FreeSpace> free_space(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path place = fs::absolute(path, error);
  struct stat about {};
  while (::stat(place.c_str(), &about) != 0) {
    if (!place.has_relative_path()) return {};
    place = place.parent_path();
  }
  struct statvfs volume {};
  if (::statvfs(place.c_str(), &volume) != 0 || volume.f_blocks == 0) return {};
  return FreeSpace{.device = about.st_dev,
                   .bytes = static_cast<int64_t>(volume.f_bavail) * static_cast<int64_t>(volume.f_frsize)};
}

}  // namespace megatrain
