// int8 moments: a code names a level between 0 and 1, times the fp32 scale of its block, which is the block's largest
// magnitude. Levels are dense near 1 and reach far down: of `bits` bits, codes [2^e, 2^(e+1)) divide the range between
// 2^-shift and 1 of their decade evenly, and each decade below has half as many, 2^shift smaller:
//
//   level(2^e + k - 1) = 2^(-shift * (bits - 1 - e)) * (2^-shift + (1 - 2^-shift) * k / 2^e),   k = 1 .. 2^e
//
//   first moment    sign in bit 7 and a code of 7 bits, decades of 8:  64 levels in (1/8, 1], down to 8^-6 = 3.8e-6
//   second moment   a code of 8 bits, decades of 16:                  128 levels in (1/16, 1], down to 16^-7 = 3.7e-9
//
// A value gets the code of the nearest level: as many as there are bounds c, halfway between levels c and c + 1, with
// value > scale * bound. Products are rounded to fp32 and nothing is divided, so every machine gives the same codes. A
// second moment above 0 never becomes 0, which would make its weight leap: its bound 0 is 0.
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
  bool above_zero;  // what is above 0 has a code above 0
};
inline constexpr MomentCode kFirstMomentCode{.bits = 7, .shift = 3, .above_zero = false};
inline constexpr MomentCode kSecondMomentCode{.bits = 8, .shift = 4, .above_zero = true};
inline constexpr uint8_t kNegativeCode = 0x80;  // of a first moment

MEGATRAIN_HOST_DEVICE constexpr float moment_level(MomentCode kind, uint32_t code) {
  if (code == 0) return 0;
  int e = 0;
  while ((code >> e) > 1) ++e;
  const float levels = static_cast<float>(1u << e), k = static_cast<float>(code + 1 - (1u << e));
  const float smallest = 1.0f / static_cast<float>(1u << kind.shift);
  const float decade = 1.0f / static_cast<float>(1u << (kind.shift * (kind.bits - 1 - e)));
  return decade * (smallest + (1 - smallest) * (k / levels));  // exact: all are small multiples of powers of two
}

// Of the last code: above every value, as none is above the scale.
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

// The values of elements [begin, begin + codes.size()) of a tensor whose blocks begin anew after every `row` elements;
// the scales are from that of the block of `begin` on.
inline void decode_moments(bool first, int64_t row, int64_t begin, std::span<const uint8_t> codes,
                           std::span<const float> scales, float* out) {
  const int64_t end = begin + static_cast<int64_t>(codes.size()), first_block = state_block_of(begin, row);
  for (int64_t at = begin; at < end;) {  // a block, or what lies of it within
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
