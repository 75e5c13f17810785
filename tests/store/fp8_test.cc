// Block-scaled fp8 compared with a formula in double, for every code.
#include "megatrain/tensor/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "megatrain/base/bf16.h"
#include "megatrain/base/rng.h"
#include "megatrain/tensor/packing.h"

namespace megatrain {

namespace {

// By the definition of E4M3: a sign, four exponent bits with a bias of 7, three mantissa bits.
double e4m3(unsigned code) {
  const double sign = code & 0x80u ? -1 : 1;
  const unsigned exponent = (code >> 3) & 15u, mantissa = code & 7u;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10));
}

// A matrix of random codes that are no NaN, and scales of either sign.
struct Matrix {
  int64_t rows, cols;
  std::vector<std::byte> codes;
  std::vector<float> scales;

  Matrix(int64_t r, int64_t c) : rows(r), cols(c) {
    for (int64_t i = 0; i < r * c; ++i) {
      const auto code = static_cast<unsigned>(random_below(1, 1, static_cast<uint64_t>(i), 254));
      codes.push_back(static_cast<std::byte>(code < 127 ? code : code + 1));
    }
    for (int64_t i = 0; i < fp8_scales(r, c); ++i) {
      const float size = 1e-3f + random_uniform(i) * 0.01f;
      scales.push_back(i % 4 == 3 ? -size : size);
    }
  }

  static float random_uniform(int64_t i) {
    return static_cast<float>(random_below(1, 2, static_cast<uint64_t>(i), 1u << 24)) / static_cast<float>(1u << 24);
  }

  std::vector<float> decoded(DType dtype) const {
    std::vector<float> values(codes.size());
    decode_fp8(dtype, codes.data(), scales.data(), cols, 0, rows * cols, values.data());
    return values;
  }
};

}  // namespace

TEST(Fp8, EveryCodeIsItsNumber) {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7Fu) == 0x7Fu) {
      EXPECT_TRUE(std::isnan(fp8_value(code)));
      continue;
    }
    EXPECT_EQ(static_cast<double>(fp8_value(code)), e4m3(code)) << code;
    EXPECT_EQ(std::signbit(fp8_value(code)), (code & 0x80u) != 0);
  }
  EXPECT_EQ(fp8_value(0x7E), 448);
}

TEST(Fp8, AnElementIsItsNumberTimesTheScaleOfItsBlockRoundedOnce) {
  for (const auto& [rows, cols] : {std::pair{300, 260}, {128, 128}, {1, 129}, {129, 1}, {5, 7}}) {
    const Matrix m(rows, cols);
    EXPECT_EQ(std::ssize(m.scales), ((rows + 127) / 128) * ((cols + 127) / 128));
    const std::vector<float> values = m.decoded(DType::f32), narrow = m.decoded(DType::bf16);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col) {
        const auto i = static_cast<size_t>(row * cols + col);
        const float scale = m.scales[static_cast<size_t>(row / 128 * ((cols + 127) / 128) + col / 128)];
        ASSERT_EQ(values[i], static_cast<float>(e4m3(std::to_integer<unsigned>(m.codes[i])) * scale))
            << row << " " << col;
        ASSERT_EQ(narrow[i], to_float(to_bf16(values[i])));
      }
    }
  }
}

TEST(Fp8, ARunMayBeginAndEndAnywhere) {
  const Matrix m(140, 270);
  const std::vector<float> all = m.decoded(DType::f32);
  for (const auto& [begin, count] : {std::pair{0, 1}, {127, 3}, {269, 2}, {128 * 270 - 5, 300}, {1000, 20000}}) {
    std::vector<float> run(static_cast<size_t>(count));
    decode_fp8(m.codes.data() + begin, m.scales.data(), m.cols, begin, count, run.data());
    EXPECT_EQ(std::memcmp(run.data(), all.data() + begin, run.size() * sizeof(float)), 0) << begin;
  }
}

TEST(Fp8, WhatWasDecodedIsEncodedToTheSameValues) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Matrix m(140, 270);
    const std::vector<float> values = m.decoded(dtype);
    std::vector<std::byte> codes(values.size());
    ASSERT_TRUE(encode_fp8(dtype, values.data(), m.scales.data(), m.cols, 0, std::ssize(values), codes.data()));
    EXPECT_EQ(codes, m.codes);
    ASSERT_TRUE(encode_fp8(dtype, values.data() + 300, m.scales.data(), m.cols, 300, 500, codes.data()));
    EXPECT_EQ(std::memcmp(codes.data(), m.codes.data() + 300, 500), 0);
  }
}

TEST(Fp8, AValueWithoutACodeIsNotEncoded) {
  const Matrix m(4, 4);
  std::byte code{};
  for (const float wrong : {449.0f, 1.06f, INFINITY, std::ldexp(1.0f, -10)}) {
    const float scale = 1;
    EXPECT_FALSE(encode_fp8(DType::f32, &wrong, &scale, 1, 0, 1, &code)) << wrong;
  }
}

TEST(Fp8, TheNearestCodeIsChosen) {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7Fu) == 0x7Fu) continue;
    EXPECT_EQ(nearest_fp8(fp8_value(code) * 0.5f, 0.5f), static_cast<std::byte>(code));
    EXPECT_EQ(nearest_fp8(fp8_value(code) * 1.02f, 1), static_cast<std::byte>(code));
    EXPECT_EQ(nearest_fp8(fp8_value(code) * 0.98f, 1), static_cast<std::byte>(code));
  }
  EXPECT_EQ(nearest_fp8(-1e9f, 1), std::byte{0xFE});
}

TEST(Fp8, TheFirstElementThatIsNotFiniteIsFound) {
  const auto found = [](const Matrix& m, DType dtype, int64_t begin = 0) {
    return first_not_finite_fp8(dtype, m.codes.data() + begin, m.scales.data(), m.cols, begin, m.rows * m.cols - begin);
  };
  Matrix m(130, 140);
  EXPECT_EQ(found(m, DType::bf16), -1);
  m.codes[5000] = std::byte{0xFF};
  m.codes[6000] = std::byte{0x7F};
  EXPECT_EQ(found(m, DType::bf16), 5000);
  EXPECT_EQ(found(m, DType::f32, 5001), 6000 - 5001);
  Matrix large(130, 140);
  std::fill(large.codes.begin(), large.codes.end(), std::byte{0x38});  // 1
  large.scales[1] = std::numeric_limits<float>::max();                 // of column 128 on: infinite in bf16
  EXPECT_EQ(found(large, DType::f32), -1);
  EXPECT_EQ(found(large, DType::bf16), 128);
  large.codes[128] = std::byte{0x40};  // 2
  EXPECT_EQ(found(large, DType::f32), 128);
  large.scales[1] = NAN;
  EXPECT_EQ(found(large, DType::f32), 128);
}

TEST(Fp8, ScalesLieBehindTheCodesAtAMultipleOfSixteenBytes) {
  EXPECT_EQ(packed_bytes(WeightPacking::fp8, 256, 384), 256 * 384 + 4 * 6);
  EXPECT_EQ(packed_scales_at(WeightPacking::fp8, 3, 5), 16);
  EXPECT_EQ(packed_bytes(WeightPacking::fp8, 3, 5), 20);
}

}  // namespace megatrain
