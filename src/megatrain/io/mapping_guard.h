// A read of a mapped file that fails, because the file was cut or its disk gave an error, arrives as SIGBUS. While a
// mapping is watched, such a read ends the process with a sentence that names the file, and exit code 5 (io). A SIGBUS
// from anywhere else goes to the handler that was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace megatrain {

struct WatchedMapping;

// [begin, begin + bytes) is a mapping of the file `path`, until it is forgotten; that has to be before it is unmapped.
// Thread-safe.
WatchedMapping* watch_mapping(const std::byte* begin, int64_t bytes, const std::string& path);
void forget_mapping(WatchedMapping* mapping) noexcept;

}  // namespace megatrain
