// A fingerprint of a file's content that is quick even for the largest token files.
#pragma once

#include <cstdint>
#include <string>

namespace megatrain {

// Blocks of 1 MiB that are read: all of a file of at most 4 GiB.
inline constexpr int64_t kFingerprintBlocks = 4096;

// xxh3_128 over the size and the hashes of the file's blocks of 1 MiB, read on several threads (0: all). Of a file with
// more than `most` blocks, so many at equal distances are read, the first and the last among them: a change elsewhere
// that leaves the size as it was is not seen. Throws Error(bad_input) or Error(io).
std::string file_fingerprint(const std::string& path, int threads, int64_t most = kFingerprintBlocks);

}  // namespace megatrain
