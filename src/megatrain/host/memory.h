// The kernel's figures for this machine's memory and this process's use of it.
#pragma once

#include <cstdint>

namespace megatrain {

int64_t host_memory_total();       // bytes, limited by the control group
int64_t host_memory_available();   // of that, what can still be used
int64_t host_memory_used();        // by this process
int64_t host_memory_peak();        // of this process
int64_t last_level_cache_bytes();  // sum over all CPUs; 0: unknown

}  // namespace megatrain
