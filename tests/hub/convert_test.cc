#include "megatrain/hub/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "megatrain/base/rng.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

uint16_t narrow(float value, DType type) {
  uint16_t bits = 0;
  write_from_f32(&value, 1, type, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

float widen(uint16_t bits, DType type) {
  float value = 0;
  widen_to_f32(reinterpret_cast<const std::byte*>(&bits), type, 1, &value);
  return value;
}

std::vector<uint16_t> all_patterns() {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  return patterns;
}

// The value of a binary float with this many exponent and mantissa bits, by definition.
double meaning(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

class HalfTypes : public testing::TestWithParam<DType> {
 protected:
  int exponent_bits() const { return GetParam() == DType::f16 ? 5 : 8; }
  int mantissa_bits() const { return GetParam() == DType::f16 ? 10 : 7; }
  uint16_t infinity() const { return GetParam() == DType::f16 ? 0x7C00 : 0x7F80; }
};

TEST_P(HalfTypes, EveryPatternSurvivesWideningAndNarrowing) {
  const std::vector<uint16_t> patterns = all_patterns();
  std::vector<float> wide(patterns.size());
  std::vector<uint16_t> back(patterns.size());
  widen_to_f32(reinterpret_cast<const std::byte*>(patterns.data()), GetParam(), 65536, wide.data());
  write_from_f32(wide.data(), 65536, GetParam(), reinterpret_cast<std::byte*>(back.data()));
  EXPECT_EQ(patterns, back);
}

TEST_P(HalfTypes, EveryPatternWidensToItsMeaning) {
  for (const uint16_t bits : all_patterns()) {
    const double expected = meaning(bits, exponent_bits(), mantissa_bits());
    const float found = widen(bits, GetParam());
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(found, expected) << bits;
      ASSERT_EQ(std::signbit(found), (bits & 0x8000) != 0) << bits;
    }
  }
}

// Between neighbours a < b: below the midpoint rounds to a, above it to b, the midpoint to the even one.
TEST_P(HalfTypes, NarrowingRoundsToNearestEvenBetweenAllNeighbours) {
  for (uint16_t low = 0; low + 1 < infinity(); ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const double a = meaning(low, exponent_bits(), mantissa_bits());
    const double b = meaning(high, exponent_bits(), mantissa_bits());
    const float middle = static_cast<float>((a + b) / 2);
    ASSERT_EQ(narrow(middle, GetParam()), low % 2 == 0 ? low : high) << low;
    ASSERT_EQ(narrow(-middle, GetParam()), (low % 2 == 0 ? low : high) | 0x8000) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f), GetParam()), low) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, INFINITY), GetParam()), high) << low;
  }
}

TEST_P(HalfTypes, NarrowingOverflowsToInfinityFromHalfAStepPastTheLargest) {
  const double largest = meaning(static_cast<uint16_t>(infinity() - 1), exponent_bits(), mantissa_bits());
  const double previous = meaning(static_cast<uint16_t>(infinity() - 2), exponent_bits(), mantissa_bits());
  const float limit = static_cast<float>(largest + (largest - previous) / 2);
  EXPECT_EQ(narrow(limit, GetParam()), infinity());
  EXPECT_EQ(narrow(std::nextafter(limit, 0.0f), GetParam()), infinity() - 1);
  EXPECT_EQ(narrow(std::numeric_limits<float>::max(), GetParam()), infinity());
  EXPECT_EQ(narrow(-std::numeric_limits<float>::max(), GetParam()), infinity() | 0x8000);
  EXPECT_EQ(narrow(INFINITY, GetParam()), infinity());
}

TEST_P(HalfTypes, NarrowingNeverTurnsANaNIntoANumber) {
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint32_t mantissa = 1u + static_cast<uint32_t>(random_below(1, 1, i, 0x7FFFFF));
    const uint32_t bits = 0x7F800000u | mantissa | ((i & 1) != 0 ? 0x80000000u : 0u);
    ASSERT_TRUE(std::isnan(widen(narrow(std::bit_cast<float>(bits), GetParam()), GetParam()))) << bits;
  }
  EXPECT_TRUE(std::isnan(widen(narrow(std::bit_cast<float>(0x7F800001u), GetParam()), GetParam())));
}

TEST_P(HalfTypes, LongRunsEqualSingleElements) {
  constexpr int64_t kCount = 1001;
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) values[i] = std::bit_cast<float>(philox(2, 3, static_cast<uint64_t>(i))[0]);
  std::vector<std::byte> out(2 * kCount + 1);
  write_from_f32(values.data(), kCount, GetParam(), out.data() + 1);  // unaligned
  for (int64_t i = 0; i < kCount; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, out.data() + 1 + 2 * i, 2);
    ASSERT_EQ(bits, narrow(values[i], GetParam())) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Convert, HalfTypes, testing::Values(DType::bf16, DType::f16),
                         [](const auto& instance) { return std::string(dtype_name(instance.param)); });

StoredTensor stored(StoredType type, const std::vector<std::byte>& bytes, int64_t offset = 0) {
  const int64_t size = static_cast<int64_t>(bytes.size()) - offset;
  return {"w", type, {size / stored_type_bytes(type)}, bytes.data() + offset, size};
}

TEST(Convert, ReadsARangeOfAnUnalignedTensor) {
  std::vector<std::byte> bytes(1 + 4 * 2);
  const float values[] = {1.0f, -2.0f, 0.5f, 3.0f};
  write_from_f32(values, 4, DType::bf16, bytes.data() + 1);
  float out[2] = {};
  read_as_f32(stored(StoredType::bf16, bytes, 1), 1, 2, out);
  EXPECT_EQ(out[0], -2.0f);
  EXPECT_EQ(out[1], 0.5f);
}

TEST(Convert, KeepsEveryBitOfF32) {
  const uint32_t patterns[] = {0x00000001u, 0x7F800001u, 0xFFC12345u, 0x80000000u, 0x3F800001u};
  std::vector<std::byte> bytes(sizeof patterns);
  std::memcpy(bytes.data(), patterns, sizeof patterns);
  float wide[5];
  read_as_f32(stored(StoredType::f32, bytes), 0, 5, wide);
  std::vector<std::byte> back(sizeof patterns);
  write_from_f32(wide, 5, DType::f32, back.data());
  EXPECT_EQ(bytes, back);
}

TEST(Convert, RefusesTypesThatAreNoParameters) {
  const std::vector<std::byte> bytes(8);
  float out[8];
  for (const StoredType type : {StoredType::f64, StoredType::i8, StoredType::f8_e4m3, StoredType::u16}) {
    expect_error(ExitCode::bad_input, {"\"w\"", stored_type_name(type), "BF16"},
                 [&] { read_as_f32(stored(type, bytes), 0, 1, out); });
  }
}

TEST(Convert, RefusesRangesOutsideTheTensor) {
  const std::vector<std::byte> bytes(8);
  float out[8];
  const StoredTensor tensor = stored(StoredType::f32, bytes);
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 3}, {2, 1}, {-1, 1}, {0, -1}, {INT64_MAX, 2}}) {
    expect_error(ExitCode::internal, {"inside its stored tensor"}, [&] { read_as_f32(tensor, begin, count, out); });
  }
}

}  // namespace
}  // namespace megatrain
