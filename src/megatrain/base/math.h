// Integer helpers for sizes; all sizes are 64-bit.
#pragma once

#include <bit>
#include <cstdint>

namespace megatrain {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// The nearest power of two that is not above, or not below, n >= 1.
constexpr int64_t power_of_two_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}
constexpr int64_t power_of_two_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

}  // namespace megatrain
