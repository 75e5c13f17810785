// MXFP4 compared with a formula in double, for every byte under every scale.
#include "megatrain/tensor/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "megatrain/base/bf16.h"

namespace megatrain {

namespace {

// By the definition of E2M1: a sign, two exponent bits with a bias of 1, one mantissa bit.
double number(unsigned code) {
  const double sign = code & 8u ? -1 : 1;
  const unsigned exponent = (code >> 1) & 3u, mantissa = code & 1u;
  return sign * (exponent == 0 ? 0.5 * mantissa : (1 + 0.5 * mantissa) * std::pow(2.0, exponent - 1.0));
}

std::vector<std::byte> every_byte() {
  std::vector<std::byte> bytes;
  for (unsigned b = 0; b < 256; ++b) bytes.push_back(static_cast<std::byte>(b));
  return bytes;
}

}  // namespace

TEST(Mxfp4, EveryByteUnderEveryScaleIsExactAndBf16HoldsIt) {
  const std::vector<std::byte> blocks = every_byte();
  for (unsigned scale = 0; scale < 256; ++scale) {
    const std::vector<std::byte> scales(16, static_cast<std::byte>(scale));
    std::vector<float> values(512);
    decode_mxfp4(blocks.data(), scales.data(), 0, 512, values.data());
    for (unsigned i = 0; i < 512; ++i) {
      const unsigned byte = i / 2, code = i % 2 == 0 ? byte % 16 : byte / 16;
      const double exact = number(code) * std::pow(2.0, static_cast<double>(scale) - 127);
      const float found = values[i];
      if (std::abs(exact) >= std::pow(2.0, 128)) {
        EXPECT_EQ(found, std::copysign(INFINITY, static_cast<float>(number(code))));
        continue;
      }
      ASSERT_EQ(static_cast<double>(found), exact) << "code " << code << " scale " << scale;
      ASSERT_EQ(std::signbit(found), (code & 8u) != 0);
      ASSERT_EQ(to_float(to_bf16(found)), found);
    }
  }
}

TEST(Mxfp4, ARunMayBeginAndEndInsideBlocks) {
  const std::vector<std::byte> blocks = every_byte();
  std::vector<std::byte> scales;
  for (unsigned block = 0; block < 16; ++block) scales.push_back(static_cast<std::byte>(120 + block));
  std::vector<float> all(512);
  decode_mxfp4(blocks.data(), scales.data(), 0, 512, all.data());
  for (const auto& [begin, count] : {std::pair{0, 1}, {1, 1}, {31, 2}, {5, 100}, {33, 31}, {511, 1}, {64, 448}}) {
    std::vector<float> run(static_cast<size_t>(count));
    decode_mxfp4(blocks.data(), scales.data(), begin, count, run.data());
    EXPECT_EQ(run, std::vector<float>(all.begin() + begin, all.begin() + begin + count));
  }
}

TEST(Mxfp4, WhatWasDecodedIsEncodedToTheSameValues) {
  for (unsigned scale = 0; scale < 252; ++scale) {  // all values are finite
    const std::vector<std::byte> blocks = every_byte(), scales(16, static_cast<std::byte>(scale));
    std::vector<float> values(512), again(512);
    decode_mxfp4(blocks.data(), scales.data(), 0, 512, values.data());
    std::vector<std::byte> codes(256), powers(16);
    ASSERT_TRUE(encode_mxfp4(values.data(), 512, codes.data(), powers.data())) << scale;
    decode_mxfp4(codes.data(), powers.data(), 0, 512, again.data());
    EXPECT_EQ(std::memcmp(values.data(), again.data(), 512 * sizeof(float)), 0) << scale;
  }
}

TEST(Mxfp4, AValueWithoutACodeIsNotEncoded) {
  std::vector<std::byte> codes(16), powers(1);
  for (const float wrong : {1.25f, 5.0f, 0.3f, 0.25f, INFINITY, NAN}) {
    std::vector<float> values(32, 6.0f);
    EXPECT_TRUE(encode_mxfp4(values.data(), 32, codes.data(), powers.data()));
    values[17] = wrong;
    EXPECT_FALSE(encode_mxfp4(values.data(), 32, codes.data(), powers.data())) << wrong;
  }
}

}  // namespace megatrain
