#include "megatrain/host/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "megatrain/host/memory.h"

namespace megatrain {
namespace {

TEST(HugePages, StartAsZeroAlignedAndWritableToTheLastByte) {
  for (const size_t bytes :
       {size_t{1}, kHugePageBytes - 1, kHugePageBytes, 5 * kHugePageBytes + 3, 40 * kHugePageBytes}) {
    auto* data = static_cast<unsigned char*>(map_huge_pages(bytes, 3));
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kHugePageBytes, 0u);
    for (size_t i = 0; i < bytes; i += 4093) ASSERT_EQ(data[i], 0) << i << " of " << bytes;
    data[0] = data[bytes - 1] = 7;
    EXPECT_EQ(data[bytes - 1], 7);
    unmap_huge_pages(data, bytes);
  }
}

TEST(HugePages, TakeNoMoreMemoryThanWasAskedForAndTheRestOfAPage) {
  constexpr size_t kCount = 64;
  for (const size_t bytes : {size_t{5000}, kHugePageBytes + 5000}) {
    const int64_t before = host_memory_used();
    std::vector<void*> mapped;
    for (size_t i = 0; i < kCount; ++i) mapped.push_back(map_huge_pages(bytes, 1));
    const int64_t taken = host_memory_used() - before;
    EXPECT_LT(taken, static_cast<int64_t>(kCount * bytes + kCount * 65536)) << "a small page is at most 64 KiB";
    for (void* data : mapped) unmap_huge_pages(data, bytes);
  }
}

TEST(HugePages, AreRefusedWithoutAbortWhenTheMachineHasNoSuchMemory) {
  EXPECT_EQ(map_huge_pages(size_t{1} << 60, 1), nullptr);
  EXPECT_EQ(map_huge_pages(0, 1), nullptr);
}

}  // namespace
}  // namespace megatrain
