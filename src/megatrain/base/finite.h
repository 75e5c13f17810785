// Values that are infinite or NaN, found fast: one pass over the bits.
#pragma once

#include <cstdint>

namespace megatrain {

// Bits of |x| below this: x is finite.
inline constexpr uint32_t kFiniteBelow = 0x7F800000u;
// Bits of |x| below this: x and the bf16 weight made of it (base/split_master.h) are both finite.
inline constexpr uint32_t kMasterFiniteBelow = kFiniteBelow - 0x8000u;
// Bits of |x| below this: x is finite, and so is every bf16 that x may be rounded to by chance (base/stochastic.h).
inline constexpr uint32_t kStochasticFiniteBelow = kFiniteBelow - 0xFFFFu;

// The first of `count` values whose magnitude's bits are not below `limit`; -1: none.
int64_t first_not_finite(const float* values, int64_t count, uint32_t limit = kFiniteBelow);

}  // namespace megatrain
