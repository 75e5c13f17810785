// Finds infinite and NaN values fast: one pass over the bits.
#pragma once

#include <cstdint>

namespace megatrain {

// x is finite if the bits of |x| are below this.
inline constexpr uint32_t kFiniteBelow = 0x7F800000u;
// x and the bf16 weight made from it (base/split_master.h) are both finite if the bits of |x| are below this.
inline constexpr uint32_t kMasterFiniteBelow = kFiniteBelow - 0x8000u;
// x and every bf16 that stochastic rounding can give it (base/stochastic.h) are finite if the bits of |x| are below
// this.
inline constexpr uint32_t kStochasticFiniteBelow = kFiniteBelow - 0xFFFFu;

// Index of the first of `count` values whose magnitude bits are not below `limit`; -1 if there is none.
int64_t first_not_finite(const float* values, int64_t count, uint32_t limit = kFiniteBelow);

}  // namespace megatrain
