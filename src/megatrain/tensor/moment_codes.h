// int8 moments. A code names a level between 0 and 1, which is multiplied by the fp32 scale of its block: the largest
// magnitude in the block. Levels are dense near 1 and reach far down. A code has `bits` bits. Codes [2^e, 2^(e+1))
// divide the range between 2^-shift and 1 of their decade evenly. Each decade below is 2^shift smaller and has half as
// many:
//
//   level(2^e + k - 1) = 2^(-shift * (bits - 1 - e)) * (2^-shift + (1 - 2^-shift) * k / 2^e),   k = 1 .. 2^e
//
//   first moment    sign in bit 7 and a code of 7 bits, decades of 8:  64 levels in (1/8, 1], down to 8^-6 = 3.8e-6
//   second moment   a code of 8 bits, decades of 16:                  128 levels in (1/16, 1], down to 16^-7 = 3.7e-9
//
// A value gets the code of the nearest level. That code is the number of bounds c with value > scale * bound, where
// bound c is halfway between levels c and c + 1. The products are rounded to fp32 and nothing is divided, so every
// machine gives the same codes. A second moment above 0 never becomes 0, which would make its weight jump: its bound 0
// is 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "megatrain/base/host_device.h"
#include "megatrain/tensor/state_format.h"

namespace megatrain {

struct MomentCode {
  int bits;
  int shift;
  bool above_zero;  // values above 0 get codes above 0
};
inline constexpr MomentCode kFirstMomentCode{.bits = 7, .shift = 3, .above_zero = false};
inline constexpr MomentCode kSecondMomentCode{.bits = 8, .shift = 4, .above_zero = true};
inline constexpr uint8_t kNegativeCode = 0x80;  // sign bit of a first moment

MEGATRAIN_HOST_DEVICE constexpr float moment_level(MomentCode kind, uint32_t code) {
  if (code == 0) return 0;
  int e = 0;
  while ((code >> e) > 1) ++e;
  const float levels = static_cast<float>(1u << e), k = static_cast<float>(code + 1 - (1u << e));
  const float smallest = 1.0f / static_cast<float>(1u << kind.shift);
  const float decade = 1.0f / static_cast<float>(1u << (kind.shift * (kind.bits - 1 - e)));
  return decade * (smallest + (1 - smallest) * (k / levels));  // exact: all are small multiples of powers of two
}

// The last code's bound is above every value, as no value exceeds the scale.
MEGATRAIN_HOST_DEVICE constexpr float moment_bound(MomentCode kind, uint32_t code) {
  if (code + 1 == 1u << kind.bits) return 2;
  if (code == 0 && kind.above_zero) return 0;
  return (moment_level(kind, code) + moment_level(kind, code + 1)) / 2;
}

struct MomentTable {
  float level[256] = {};
};
constexpr MomentTable make_moment_table(MomentCode kind) {
  MomentTable table;
  for (uint32_t code = 0; code < 1u << kind.bits; ++code) table.level[code] = moment_level(kind, code);
  return table;
}
inline constexpr MomentTable kFirstMomentTable = make_moment_table(kFirstMomentCode);
inline constexpr MomentTable kSecondMomentTable = make_moment_table(kSecondMomentCode);

MEGATRAIN_HOST_DEVICE float decode_first_moment(uint8_t code, float scale, const float* level) {
  const float magnitude = scale * level[code & 0x7F];
  return code & kNegativeCode ? -magnitude : magnitude;
}
MEGATRAIN_HOST_DEVICE float decode_second_moment(uint8_t code, float scale, const float* level) {
  return scale * level[code];
}

// Decodes elements [begin, begin + codes.size()) of a tensor whose blocks restart after every `row` elements. `scales`
// starts with the scale of the block of `begin`.
inline void decode_moments(bool first, int64_t row, int64_t begin, std::span<const uint8_t> codes,
                           std::span<const float> scales, float* out) {
  const int64_t end = begin + static_cast<int64_t>(codes.size()), first_block = state_block_of(begin, row);
  for (int64_t at = begin; at < end;) {  // one block, or the part of it in the range
    const int64_t column = at % row, block_end = at - column + std::min((column / kStateBlock + 1) * kStateBlock, row);
    const float scale = scales[static_cast<size_t>(state_block_of(at, row) - first_block)];
    for (; at < std::min(block_end, end); ++at) {
      const uint8_t code = codes[static_cast<size_t>(at - begin)];
      out[at - begin] = first ? decode_first_moment(code, scale, kFirstMomentTable.level)
                              : decode_second_moment(code, scale, kSecondMomentTable.level);
    }
  }
}

}  // namespace megatrain
