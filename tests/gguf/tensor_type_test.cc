#include "megatrain/gguf/tensor_type.h"

#include <limits>
#include <random>

#include "tests/support/read_gguf.h"

namespace megatrain {
namespace {

std::string encoded(const std::vector<float>& values, GgufType type) {
  std::vector<std::byte> bytes;
  encode_gguf(values.data(), std::ssize(values), type, "blk.0.ffn_up.weight", bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// As in the format's reference: the scale is fp32 and then fp16; the inverse is that of the fp32 one.
std::string reference_q8(const std::vector<float>& x) {
  std::string bytes;
  for (size_t block = 0; block < x.size(); block += 32) {
    double largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(double{x[block + i]}));
    const auto scale = static_cast<float>(largest / 127.0);  // rounded once, like a division of floats
    const auto inverse = static_cast<float>(scale == 0 ? 0.0 : 1.0 / double{scale});
    uint16_t best = 0;  // the nearest fp16, found by trying all
    for (uint32_t bits = 1; bits < 0x7C00; ++bits) {
      const double before = std::fabs(fp16_value(best) - double{scale}),
                   now = std::fabs(fp16_value(static_cast<uint16_t>(bits)) - double{scale});
      if (now < before || (now == before && bits % 2 == 0)) best = static_cast<uint16_t>(bits);
    }
    bytes.append(reinterpret_cast<const char*>(&best), 2);
    for (size_t i = 0; i < 32; ++i) {
      const auto matmul = static_cast<float>(double{x[block + i]} * double{inverse});
      const double size = std::floor(std::fabs(double{matmul}) + 0.5);  // halves round away from zero
      bytes += static_cast<char>(static_cast<int8_t>(matmul < 0 ? -size : size));
    }
  }
  return bytes;
}

}  // namespace

TEST(GgufTypes, Q8IsTheReferenceBitForBit) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (const float size : {1e-7f, 1e-3f, 0.02f, 1.0f, 300.0f, 60000.0f}) {
    for (int i = 0; i < 32; ++i) values.push_back(size * normal(random));
  }
  for (int i = 0; i < 32; ++i) values.push_back(0.0f);
  for (int i = 0; i < 32; ++i) values.push_back(static_cast<float>(i) - 15.5f);  // scale 15.5 / 127
  for (int i = 0; i < 32; ++i) values.push_back(i == 0 ? 127.0f : i - 15.5f);    // scale 1: every number is a half
  EXPECT_EQ(encoded(values, GgufType::q8_0), reference_q8(values));
  EXPECT_EQ(gguf_bytes(GgufType::q8_0, std::ssize(values)), std::ssize(reference_q8(values)));
}

TEST(GgufTypes, PlainTypesRoundToNearestEven) {
  const std::vector<float> values = {1.0f, -2.5f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 0.1f, 65504.0f};
  EXPECT_EQ(decode_values(encoded(values, GgufType::f32), 0), std::vector<double>(values.begin(), values.end()));
  EXPECT_EQ(decode_values(encoded(values, GgufType::bf16), 30),
            (std::vector<double>{1, -2.5, 1, 1 + 0x1p-6, 0.10009765625, 65536}));
  EXPECT_EQ(decode_values(encoded(values, GgufType::f16), 1),
            (std::vector<double>{1, -2.5, 1 + 0x1p-8, 1 + 0x3p-8, 0.0999755859375, 65504}));
}

TEST(GgufTypes, RefuseWhatTheyCannotHold) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(32, 0.5f);
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    values[7] = bad;
    for (const GgufType type : {GgufType::f32, GgufType::f16, GgufType::bf16, GgufType::q8_0})
      expect_error(ExitCode::bad_input, {"blk.0.ffn_up.weight", "not exported"}, [&] { encoded(values, type); });
  }
  values[7] = -70000.0f;
  expect_error(ExitCode::bad_input, {"-70000", "fp16", "bf16 or f32"}, [&] { encoded(values, GgufType::f16); });
  values[7] = 1e7f;
  expect_error(ExitCode::bad_input, {"q8_0", "bf16 or f32"}, [&] { encoded(values, GgufType::q8_0); });
}

TEST(GgufTypes, RowsThatBlocksDoNotFillAreFp16) {
  EXPECT_EQ(type_for_rows(GgufType::q8_0, 64), GgufType::q8_0);
  EXPECT_EQ(type_for_rows(GgufType::q8_0, 40), GgufType::f16);
  EXPECT_EQ(type_for_rows(GgufType::bf16, 40), GgufType::bf16);
}

}  // namespace megatrain
