// The true fp32 master in two planes: a bf16 weight (what streams) and the low 16 bits.
//
//   hi = (u + 0x8000) >> 16        the master rounded half up: the bf16 weight
//   lo = u & 0xFFFF
//   u  = (hi << 16) + sign_extend(lo)   modulo 2^32: inverts for all 2^32 values
//
// hi may round a NaN to zero or infinity, so the code that writes a master checks u and hi for finiteness.
#pragma once

#include <bit>
#include <cstdint>

#include "megatrain/base/bf16.h"

namespace megatrain {

inline bf16 master_high(float master) {
  return {static_cast<uint16_t>((std::bit_cast<uint32_t>(master) + 0x8000u) >> 16)};
}
inline uint16_t master_low(float master) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(master) & 0xFFFFu); }
inline float join_master(bf16 high, uint16_t low) {
  const uint32_t extended = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(low)));
  return std::bit_cast<float>((static_cast<uint32_t>(high.bits) << 16) + extended);
}

}  // namespace megatrain
