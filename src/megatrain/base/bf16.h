// bf16: the upper half of an fp32, rounded to nearest even. Bits only; arithmetic happens in fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace megatrain {

struct bf16 {
  uint16_t bits = 0;
  bool operator==(const bf16&) const = default;
};

inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
inline float to_float(float x) { return x; }

// Round to nearest even; NaN stays a (quiet) NaN.
inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return {static_cast<uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded)};
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}

}  // namespace megatrain
