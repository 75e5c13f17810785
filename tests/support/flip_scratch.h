// Damages a scratch file. It has no name, so it is reached through the descriptors of the process that has it open.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace megatrain {

// Flips a bit every `stride` bytes from `begin` up to `end` or the end of the file. Returns false if the process has no
// scratch file.
inline bool flip_scratch(int64_t begin, int64_t end, int64_t stride, const std::string& process = "self") {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + process + "/fd", gone)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find("megatrain-scratch-") == std::string::npos) continue;
    const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) continue;
    unsigned char byte = 0;
    for (int64_t at = begin; at < end && ::pread(file, &byte, 1, at) == 1; at += stride) {
      byte ^= 4;
      EXPECT_EQ(::pwrite(file, &byte, 1, at), 1);
    }
    ::close(file);
    return true;
  }
  return false;
}

}  // namespace megatrain
