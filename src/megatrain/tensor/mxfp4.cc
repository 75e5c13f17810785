#include "megatrain/tensor/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace megatrain {
namespace {

// Numbers are doubled and powers halved: 2^128 is beyond fp32, but 0.5 * 2^128 is not.
constexpr std::array<float, 16> kTwice = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};

const std::array<float, 256>& half_powers() {
  static const std::array<float, 256> powers = [] {
    std::array<float, 256> made{};
    for (size_t scale = 0; scale < made.size(); ++scale) made[scale] = std::ldexp(1.0f, static_cast<int>(scale) - 128);
    return made;
  }();
  return powers;
}

}  // namespace

void decode_mxfp4(const std::byte* blocks, const std::byte* scales, int64_t begin, int64_t count, float* out) {
  const std::array<float, 256>& powers = half_powers();
  for (int64_t i = begin; i < begin + count; ++i) {
    const auto pair = std::to_integer<unsigned>(blocks[i / 2]);
    const unsigned code = i % 2 == 0 ? pair & 15u : pair >> 4;
    *out++ = kTwice[code] * powers[std::to_integer<unsigned>(scales[i / kMxfp4Block])];
  }
}

float mxfp4_value(unsigned code) { return kTwice[code & 15u] / 2; }

namespace {

// The code of a value given in halves of its block's power; -1 if there is none.
int code_of(double halves) {
  constexpr std::array<int8_t, 13> kCodes = {0, 1, 2, 3, 4, -1, 5, -1, 6, -1, -1, -1, 7};  // by the number of halves
  const double size = std::abs(halves);
  if (!(size < static_cast<double>(kCodes.size()))) return -1;
  const auto whole = static_cast<size_t>(size);
  if (static_cast<double>(whole) != size || kCodes[whole] < 0) return -1;
  return kCodes[whole] + (std::signbit(halves) ? 8 : 0);
}

}  // namespace

bool encode_mxfp4(const float* values, int64_t count, std::byte* blocks, std::byte* scales) {
  for (int64_t at = 0; at < count; at += kMxfp4Block) {
    float largest = 0;
    for (int64_t i = 0; i < kMxfp4Block; ++i) largest = std::max(largest, std::abs(values[at + i]));
    int exponent = 0;
    std::frexp(largest, &exponent);  // largest = 4 or 6 times 2^(exponent - 3)
    const int scale = largest == 0 ? 127 : std::clamp(exponent - 3 + 127, 0, 254);
    *scales++ = static_cast<std::byte>(scale);
    const double halves = std::ldexp(1.0, 128 - scale);
    for (int64_t i = 0; i < kMxfp4Block; i += 2) {
      const int low = code_of(values[at + i] * halves), high = code_of(values[at + i + 1] * halves);
      if (low < 0 || high < 0) return false;
      *blocks++ = static_cast<std::byte>(low | high << 4);
    }
  }
  return true;
}

}  // namespace megatrain
