// What the kernel says of this machine's memory and of this process's share.
#pragma once

#include <cstdint>

namespace megatrain {

int64_t host_memory_total();       // bytes; no more than its control group may use
int64_t host_memory_available();   // of these, what can still be used
int64_t host_memory_used();        // by this process
int64_t host_memory_peak();        // of this process
int64_t last_level_cache_bytes();  // of all CPUs together; 0: the kernel does not say

}  // namespace megatrain
