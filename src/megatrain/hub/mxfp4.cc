#include "megatrain/hub/mxfp4.h"

#include <array>
#include <cmath>

namespace megatrain {
namespace {

// Twice the numbers and half the powers: 2^128 is beyond fp32, and 0.5 times it is not.
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

}  // namespace megatrain
