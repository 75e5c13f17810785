// A recorded sequence of gradients that Python and C++ compute to the same bits: integers from a 32-bit generator,
// scaled by powers of two. tests/optim/make_adamw_golden.py is the Python side.
#pragma once

#include <cstdint>

namespace megatrain {

inline constexpr int kRecordedWeights = 512;
inline constexpr int kRecordedSteps = 1000;

inline uint32_t recorded_bits(uint32_t x) {
  x = x * 0x9E3779B1u + 0x7F4A7C15u;
  x = (x ^ (x >> 15)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

// The sum of four 16-bit uniforms: roughly normal, std 0.018.
inline float recorded_weight(int i) {
  int32_t sum = 0;
  for (int part = 0; part < 4; ++part) {
    sum += static_cast<int32_t>(recorded_bits(static_cast<uint32_t>(4 * i + part)) >> 16) - 32768;
  }
  return static_cast<float>(sum) * 0x1.0p-21f;
}

// Noise of std 1.1e-3 around a mean specific to the weight, so that weights drift.
inline float recorded_gradient(int step, int i) {
  const uint32_t at = static_cast<uint32_t>(step * kRecordedWeights + i);
  const int32_t noise = static_cast<int32_t>(recorded_bits(0x40000000u + at) >> 16) - 32768;
  const int32_t mean = static_cast<int32_t>(recorded_bits(0x20000000u + static_cast<uint32_t>(i)) >> 18) - 8192;
  return static_cast<float>(noise + mean) * 0x1.0p-24f;
}

}  // namespace megatrain
