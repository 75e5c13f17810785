// A read of a mapped file that fails, because the file was truncated or its disk reported an error, raises SIGBUS.
// While a mapping is watched, such a read ends the process with a message that names the file, and exit code 5 (io). A
// SIGBUS from anywhere else goes to the previous handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace megatrain {

struct WatchedMapping;

// Declares [begin, begin + bytes) a mapping of the file `path` until it is forgotten. Forget it before unmapping it.
// Thread-safe.
WatchedMapping* watch_mapping(const std::byte* begin, int64_t bytes, const std::string& path);
void forget_mapping(WatchedMapping* mapping) noexcept;

}  // namespace megatrain
