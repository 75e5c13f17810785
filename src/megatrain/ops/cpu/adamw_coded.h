// AdamW over state that is not exact: each block is decoded into floats, updated by the exact pass, and encoded again.
// The loops are plain, so that the compiler vectorises them for the instruction set of the including file. The
// namespace is unnamed for the reason that adamw_pass.h gives.
#pragma once

#include <cstdint>

#include "megatrain/base/stochastic.h"
#include "megatrain/ops/cpu/adamw_pass.h"
#include "megatrain/tensor/moment_codes.h"

namespace megatrain {
namespace {

inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }

// `x` if wanted, else 0. Branch-free, because a branch would prevent vectorisation.
inline float where(bool wanted, float x) { return float_of(bits_of(x) & -static_cast<uint32_t>(wanted)); }

void widen_bf16(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = float_of(static_cast<uint32_t>(from[i]) << 16);
}

// Rounds stochastically with 16 of each element's 32 random bits, from bit `shift` on. False if a value is too large
// for that.
bool round_to_bf16(const float* from, uint16_t* to, int64_t count, uint64_t key, int shift, uint32_t first) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = bits_of(from[i]), magnitude = bits & 0x7FFFFFFFu;
    const uint32_t random = element_bits(key, first + static_cast<uint32_t>(i)) >> shift & 0xFFFFu;
    to[i] = static_cast<uint16_t>(round_by_chance(bits, random));
    worst = magnitude > worst ? magnitude : worst;
  }
  return worst < kStochasticFiniteBelow;
}

// 2^n as a float, for n from -126 to 127.
inline float power_of_two(int32_t n) { return float_of(static_cast<uint32_t>(127 + n) << 23); }

// moment_level() by arithmetic, where a table would need gathers. Every step is exact.
template <MomentCode kKind>
inline float level_of(uint32_t code) {
  constexpr float kSmallest = 1.0f / static_cast<float>(1 << kKind.shift);
  const int32_t next = static_cast<int32_t>(code) + 1;
  const int32_t exponent = static_cast<int32_t>(bits_of(static_cast<float>(next - 1)) >> 23), e = exponent - 127;
  const float share = (1 - kSmallest) * static_cast<float>(next) * power_of_two(-e) + (2 * kSmallest - 1);
  const float level = power_of_two(kKind.shift * (e + 1 - kKind.bits)) * share;
  return where(code != 0, level);
}

void decode_first(const uint8_t* codes, float scale, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t code = codes[i];
    const float magnitude = scale * level_of<kFirstMomentCode>(code & 0x7F);
    to[i] = float_of(bits_of(magnitude) | (code & kNegativeCode) << 24);
  }
}
void decode_second(const uint8_t* codes, float scale, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = scale * level_of<kSecondMomentCode>(codes[i]);
}

inline float largest_magnitude_of(const float* values, int64_t count) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = bits_of(values[i]) & 0x7FFFFFFFu;
    worst = magnitude > worst ? magnitude : worst;
  }
  return float_of(worst);
}

// The code of a magnitude that is at most `scale`, which is 2^-100 or more (ops/adamw.h). An approximate quotient gives
// the code or the one below it. The bound between the two, which defines the codes, then decides. Bounds are computed
// by arithmetic, as above.
template <MomentCode kKind>
inline uint32_t nearest_code(float magnitude, float scale, float inverse) {
  constexpr float kSmallest = 1.0f / static_cast<float>(1 << kKind.shift);
  constexpr float kHalf = 0.5f - 1.0f / 256;  // a value this close below a bound counts as below it
  const float y = magnitude * inverse;
  const int32_t octave = 127 - static_cast<int32_t>(bits_of(y) >> 23);  // y is in [2^-octave, 2^-octave+1)
  int32_t decade = (octave - 1) * (kKind.shift == 3 ? 43 : 32) >> 7;    // octaves / shift
  decade = decade < 0 ? 0 : decade > kKind.bits - 1 ? kKind.bits - 1 : decade;
  const int32_t e = kKind.bits - 1 - decade;
  const float levels = power_of_two(e);  // of the decade
  const float t = (y * power_of_two(kKind.shift * decade) - kSmallest) * (levels * (1 / (1 - kSmallest))) + kHalf;
  const float above = t > 0.0f ? t : 0.0f, most = levels - 1;  // also clears NaN
  const int32_t k = static_cast<int32_t>(above < most ? above : most);
  const float share = kSmallest + (1 - kSmallest) * (static_cast<float>(k) + 0.5f) * power_of_two(-e);
  constexpr float kLowest = kKind.above_zero ? 0.0f : 0.5f;  // between codes 0 and 1
  const float bound = power_of_two(-kKind.shift * decade) * (where(e != 0, share) + where(e == 0, kLowest));
  return static_cast<uint32_t>(static_cast<int32_t>(levels) - 1 + k + (magnitude > scale * bound));
}

// All codes are 0 in a block whose largest magnitude is 0.
float encode_zeros(uint8_t* codes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) codes[i] = 0;
  return 0;
}

float encode_first(const float* from, uint8_t* codes, int64_t count) {
  const float scale = largest_magnitude_of(from, count), inverse = 1.0f / scale;
  if (scale == 0) return encode_zeros(codes, count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = bits_of(from[i]);
    const uint32_t code = nearest_code<kFirstMomentCode>(float_of(bits & 0x7FFFFFFFu), scale, inverse);
    codes[i] = static_cast<uint8_t>(code == 0 ? 0 : code | (bits >> 24 & kNegativeCode));
  }
  return scale;
}

float encode_second(const float* from, uint8_t* codes, int64_t count) {
  const float scale = largest_magnitude_of(from, count), inverse = 1.0f / scale;
  if (scale == 0) return encode_zeros(codes, count);
  for (int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<uint8_t>(nearest_code<kSecondMomentCode>(from[i], scale, inverse));
  return scale;
}

// Elements [begin, begin + count) of the run, the `block`-th of its blocks.
template <class Vec>
bool update_coded_block(const AdamW& args, uint64_t key, int64_t block, int64_t begin, int64_t count) {
  alignas(64) float m[kStateBlock], v[kStateBlock], w[kStateBlock];
  const MomentFormat moments = args.coded.moments;
  const uint32_t first = static_cast<uint32_t>(args.coded.first + begin);
  const auto at = [begin](auto* plane) { return plane ? plane + begin : nullptr; };
  const bool by_chance = args.weight != nullptr && args.low == nullptr;
  AdamW part{.scalars = args.scalars,
             .count = count,
             .grad_bf16 = at(args.grad_bf16),
             .grad_f32 = at(args.grad_f32),
             .m = m,
             .v = v,
             .weight = by_chance ? nullptr : at(args.weight),
             .low = at(args.low),
             .master = by_chance ? w : at(args.master)};
  uint16_t* const weight = reinterpret_cast<uint16_t*>(at(args.weight));
  if (by_chance) widen_bf16(weight, w, count);
  bool finite = true;
  if (moments == MomentFormat::fp32) {
    part.m = static_cast<float*>(args.m) + begin;
    part.v = static_cast<float*>(args.v) + begin;
    finite = update_exact<Vec>(part);
  } else if (moments == MomentFormat::bf16) {
    uint16_t* const at_m = static_cast<uint16_t*>(args.m) + begin;
    uint16_t* const at_v = static_cast<uint16_t*>(args.v) + begin;
    widen_bf16(at_m, m, count);
    widen_bf16(at_v, v, count);
    finite = update_exact<Vec>(part);
    finite = round_to_bf16(m, at_m, count, key, 0, first) && finite;
    finite = round_to_bf16(v, at_v, count, key, 16, first) && finite;
  } else {
    uint8_t* const at_m = static_cast<uint8_t*>(args.m) + begin;
    uint8_t* const at_v = static_cast<uint8_t*>(args.v) + begin;
    decode_first(at_m, args.coded.m_scales[block], m, count);
    decode_second(at_v, args.coded.v_scales[block], v, count);
    finite = update_exact<Vec>(part);
    args.coded.m_scales[block] = encode_first(m, at_m, count);
    args.coded.v_scales[block] = encode_second(v, at_v, count);
  }
  if (by_chance) finite = round_to_bf16(w, weight, count, mix_key(key, 1), 0, first) && finite;
  return finite;
}

template <class Vec>
bool update_coded(const AdamW& args) {
  const uint64_t key = mix_key(args.scalars.random, args.coded.name_hash);
  const int64_t row = args.coded.row > 0 ? args.coded.row : args.count;
  bool finite = true;
  int64_t block = 0;
  for (int64_t begin = 0; begin < args.count; begin += row) {
    const int64_t end = begin + row < args.count ? begin + row : args.count;
    for (int64_t at = begin; at < end; at += kStateBlock, ++block)
      finite = update_coded_block<Vec>(args, key, block, at, end - at < kStateBlock ? end - at : kStateBlock) && finite;
  }
  return finite;
}

template <class Vec>
bool adamw_pass(const AdamW& args) {
  return args.exact() ? update_exact<Vec>(args) : update_coded<Vec>(args);
}

}  // namespace
}  // namespace megatrain
