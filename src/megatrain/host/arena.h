// Large host memory: transparent huge pages, touched by many threads so that their zeroing is parallel.
#pragma once

#include <cstddef>

namespace megatrain {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Zeroed memory aligned to a huge page. It takes `bytes` and no more than the rest of a small page: what does not fill
// a huge page at the end lies in small ones. `touch_threads` threads fault every page in before it returns. nullptr
// when the system has no such memory to map.
void* map_huge_pages(size_t bytes, int touch_threads);

// `bytes` as given to map_huge_pages.
void unmap_huge_pages(void* data, size_t bytes);

}  // namespace megatrain
