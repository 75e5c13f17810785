// What the kernel says of this machine's memory and of this process's share.
#pragma once

#include <cstdint>

namespace megatrain {

int64_t host_memory_available();  // bytes
int64_t host_memory_used();       // by this process
int64_t host_memory_peak();       // of this process

}  // namespace megatrain
