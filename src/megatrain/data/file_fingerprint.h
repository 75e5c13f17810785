// A fingerprint of a file's content that is quick even for the largest token files.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace megatrain {

struct FingerprintScope {
  int64_t bytes = std::numeric_limits<int64_t>::max();  // only this much of the file's beginning
  int64_t most = 4096;                                  // blocks to read; a file of at most 4 GiB is read completely
  std::function<void(int64_t)> read = {};               // called with the bytes just read, from several threads
};

// xxh3_128 over the file's size and the hashes of its 1 MiB blocks, read on several threads (0: all). If the file has
// more than `most` blocks, only that many are read, evenly spaced and including the first and the last. A change
// elsewhere that keeps the size is then not noticed. Throws Error(bad_input) or Error(io).
std::string file_fingerprint(const std::string& path, int threads, const FingerprintScope& scope = {});

}  // namespace megatrain
