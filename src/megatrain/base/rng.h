// Counter-based random numbers: a function of (seed, purpose, index), never of order or thread.
// Philox 4x32 with 10 rounds (Salmon et al., 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace megatrain {

using RandomBlock = std::array<uint32_t, 4>;

inline RandomBlock philox(uint64_t seed, uint64_t purpose, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(purpose), c3 = static_cast<uint32_t>(purpose >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t b = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const uint32_t n0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

inline uint64_t random_bits(uint64_t seed, uint64_t purpose, uint64_t index) {
  const RandomBlock r = philox(seed, purpose, index);
  return (static_cast<uint64_t>(r[0]) << 32) | r[1];
}

// Uniform in (0, 1), never 0: safe under log.
inline double uniform_open(uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1.0p-32; }

inline double random_uniform(uint64_t seed, uint64_t purpose, uint64_t index) {
  return static_cast<double>(random_bits(seed, purpose, index) >> 11) * 0x1.0p-53;
}

// Uniform below `bound` (> 0). The bias of the multiply-shift is under 2^-32 for all bounds used here.
inline uint64_t random_below(uint64_t seed, uint64_t purpose, uint64_t index, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random_bits(seed, purpose, index)) * bound) >> 64);
}

// Standard normals by Box-Muller; element i of a tensor is lane i%2 of block i/2.
inline std::array<float, 2> random_normal_pair(uint64_t seed, uint64_t purpose, uint64_t pair) {
  const RandomBlock r = philox(seed, purpose, pair);
  const double radius = std::sqrt(-2.0 * std::log(uniform_open(r[0])));
  const double angle = 2.0 * std::numbers::pi * uniform_open(r[1]);
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

}  // namespace megatrain
