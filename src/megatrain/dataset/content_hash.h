// The hash of a file's bytes, remembered while the file stays as it is.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

// A file as the file system tells of it: another stamp, another content.
struct FileStamp {
  int64_t bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  uint64_t inode = 0, device = 0;

  bool operator==(const FileStamp&) const = default;
};
FileStamp stamp_of(const std::string& path);

struct ContentHash {
  std::string hash;  // xxh3_128
  FileStamp stamp;   // when it was read
};

// What was computed is kept in `memory_directory`, one file for each path. Nothing when `stop` was set.
std::optional<ContentHash> content_hash(const std::string& path, const std::string& memory_directory,
                                        const volatile std::sig_atomic_t* stop);

}  // namespace megatrain
