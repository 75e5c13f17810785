// Flips one bit of a file, as a failing disk would.
#pragma once

#include "tests/support/fixtures.h"

namespace megatrain {

inline void flip_byte(const std::string& path, size_t from_end) {
  std::string bytes = read_bytes(path);
  bytes[bytes.size() - from_end] = static_cast<char>(bytes[bytes.size() - from_end] ^ 1);
  write_bytes(path, bytes);
}

}  // namespace megatrain
