// A fingerprint of a file's content that is quick even for the largest token files.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace megatrain {

struct FingerprintScope {
  int64_t bytes = std::numeric_limits<int64_t>::max();  // of the file's beginning
  int64_t most = 4096;                                  // blocks that are read: all of a file of at most 4 GiB
  std::function<void(int64_t)> read = {};               // told of the bytes that have been, from several threads
};

// xxh3_128 over the size and the hashes of the file's blocks of 1 MiB, read on several threads (0: all). Of a file with
// more than `most` blocks, so many at equal distances are read, the first and the last among them: a change elsewhere
// that leaves the size as it was is not seen. Throws Error(bad_input) or Error(io).
std::string file_fingerprint(const std::string& path, int threads, const FingerprintScope& scope = {});

}  // namespace megatrain
