// Large host memory: transparent huge pages, touched by many threads so that the kernel zeroes them in parallel.
#pragma once

#include <cstddef>

namespace megatrain {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Zeroed memory aligned to a huge page. It takes `bytes` rounded up to a small page: a remainder that does not fill a
// huge page is in small ones. `touch_threads` threads fault every page in before this returns. nullptr if the system
// cannot map that much.
void* map_huge_pages(size_t bytes, int touch_threads);

// `bytes` must be what was given to map_huge_pages.
void unmap_huge_pages(void* data, size_t bytes);

}  // namespace megatrain
