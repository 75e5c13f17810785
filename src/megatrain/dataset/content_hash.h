// The hash of a file's bytes, remembered until the file changes.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

namespace megatrain {

// What the file system says about a file. If any of it changes, the content is assumed to have changed.
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

// Results are kept in `memory_directory`, one file per path. Empty if `stop` was set.
std::optional<ContentHash> content_hash(const std::string& path, const std::string& memory_directory,
                                        const volatile std::sig_atomic_t* stop);

}  // namespace megatrain
