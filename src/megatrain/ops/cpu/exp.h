// exp in fp32 as branch-free arithmetic, so that loops over it vectorise; within 1 unit in the last place.
// Below -87 it is 0, above 88 it stays at exp(88), and NaN stays NaN. Bounds are integer masks: comparisons would
// become branches around floating-point operations, which compilers do not vectorise.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace megatrain::cpu {

inline float exp_f32(float x) {
  constexpr int32_t kLow = std::bit_cast<int32_t>(87.0f), kHigh = std::bit_cast<int32_t>(88.0f), kInfinity = 0x7F800000;
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRound = 0x1.8p+23f;  // adding it rounds to an integer held in the low bits
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t magnitude = bits & 0x7FFFFFFF;
  const int32_t negative = bits >> 31;
  const int32_t below = ((kLow - magnitude) >> 31) & negative;
  const int32_t nan = (kInfinity - magnitude) >> 31;
  const float y = std::bit_cast<float>(std::min(magnitude, kHigh) | (negative & INT32_MIN));
  const float shifted = y * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (y - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const uint32_t scaled = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  return std::bit_cast<float>((static_cast<int32_t>(scaled) & ~below & ~nan) | (bits & nan));
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

}  // namespace megatrain::cpu
