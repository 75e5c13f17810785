#include "megatrain/base/split_master.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <thread>

namespace megatrain {
namespace {

// How many values with this top bit the two planes do not reproduce.
uint32_t wrong_values(uint32_t top_bit) {
  uint32_t wrong = 0;
  for (uint32_t u = 0; u < 0x80000000u; ++u) {
    const float master = std::bit_cast<float>(top_bit | u);
    wrong += std::bit_cast<uint32_t>(join_master(master_high(master), master_low(master))) != (top_bit | u);
  }
  return wrong;
}

TEST(SplitMaster, TheTwoPlanesGiveBackEveryOneOfThe2To32Values) {
  uint32_t positive = 1;
  std::thread half([&] { positive = wrong_values(0); });
  const uint32_t negative = wrong_values(0x80000000u);
  half.join();
  EXPECT_EQ(positive, 0u);
  EXPECT_EQ(negative, 0u);
}

TEST(SplitMaster, TheHighPlaneIsTheMasterRoundedToBf16ExceptAtTies) {
  for (uint64_t u = 0; u < 0x7F7F8000u; u += 77) {
    if ((u & 0xFFFFu) == 0x8000u) continue;
    const float master = std::bit_cast<float>(static_cast<uint32_t>(u));
    ASSERT_EQ(master_high(master), to_bf16(master)) << u;
    ASSERT_EQ(master_high(-master), to_bf16(-master)) << u;
  }
}

TEST(SplitMaster, ABf16WeightIsItsOwnHighPlaneWithNoLowBits) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const bf16 weight{static_cast<uint16_t>(bits)};
    const float master = join_master(weight, 0);
    EXPECT_EQ(std::bit_cast<uint32_t>(master), bits << 16);
    EXPECT_EQ(master_high(master), weight);
    EXPECT_EQ(master_low(master), 0);
  }
}

}  // namespace
}  // namespace megatrain
