#include "megatrain/host/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "megatrain/base/math.h"
#include "megatrain/host/thread_team.h"

namespace megatrain {

namespace {

constexpr size_t kSmallPageBytes = 4096;

size_t mapped_bytes(size_t bytes) {
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), page));
}

// Writes one byte per small page, so that the kernel backs it with memory (a huge page if possible) from this thread.
void touch(std::byte* begin, size_t bytes) {
  for (size_t offset = 0; offset < bytes; offset += kSmallPageBytes) {
    *static_cast<volatile std::byte*>(begin + offset) = std::byte{0};
  }
}

}  // namespace

void* map_huge_pages(size_t bytes, int touch_threads) {
  if (bytes == 0) return nullptr;
  const size_t wanted = mapped_bytes(bytes);
  // One huge page more than needed, so that an aligned range is inside; the rest is unmapped.
  const size_t reserved = wanted + kHugePageBytes;
  void* raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  std::byte* start = static_cast<std::byte*>(raw);
  const size_t misaligned = reinterpret_cast<uintptr_t>(start) % kHugePageBytes;
  const size_t head = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  std::byte* data = start + head;
  if (head > 0) munmap(start, head);
  if (reserved - head > wanted) munmap(data + wanted, reserved - head - wanted);
  madvise(data, wanted, MADV_HUGEPAGE);

  const int64_t pages = ceil_div(static_cast<int64_t>(wanted), static_cast<int64_t>(kHugePageBytes));
  const int threads = static_cast<int>(std::clamp<int64_t>(touch_threads, 1, std::max<int64_t>(pages / 8, 1)));
  ThreadTeam team(threads);
  team.parallel_for(pages, [&](int64_t page) {
    const size_t at = static_cast<size_t>(page) * kHugePageBytes;
    touch(data + at, std::min(kHugePageBytes, wanted - at));
  });
  return data;
}

void unmap_huge_pages(void* data, size_t bytes) {
  if (data) munmap(data, mapped_bytes(bytes));
}

}  // namespace megatrain
