#include "megatrain/base/bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace megatrain {
namespace {

TEST(Bf16, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    const float f = to_float(x);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(f))));
    } else {
      EXPECT_EQ(to_bf16(f), x);
    }
  }
}

TEST(Bf16, RoundsToNearestAndTiesToEven) {
  const auto rounded = [](uint32_t bits) { return to_bf16(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(rounded(0x3F807FFFu), 0x3F80u);
  EXPECT_EQ(rounded(0x3F808000u), 0x3F80u);  // tie, even below
  EXPECT_EQ(rounded(0x3F808001u), 0x3F81u);
  EXPECT_EQ(rounded(0x3F818000u), 0x3F82u);  // tie, even above
  EXPECT_EQ(rounded(0x00000001u), 0x0000u);
  EXPECT_EQ(rounded(0x00018000u), 0x0002u);  // denormals round like the rest
  EXPECT_EQ(rounded(0x80000000u), 0x8000u);
  EXPECT_EQ(rounded(0x7F7FFFFFu), 0x7F80u);  // the largest float is past the largest bf16
}

TEST(Bf16, KeepsInfinityAndNaN) {
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7F80u);
  EXPECT_EQ(to_bf16(-std::numeric_limits<float>::infinity()).bits, 0xFF80u);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0xFFFFFFFFu)))));
}

}  // namespace
}  // namespace megatrain
