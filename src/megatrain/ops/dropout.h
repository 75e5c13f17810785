// Dropout: sets elements to zero by chance and scales the others, so that the mean stays. Which ones depends only on
// the key, the row's number and the column (base/stochastic.h), so a second call with the same key drops the same ones.
#pragma once

#include <cstdint>

#include "megatrain/base/stochastic.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

// out = x / (1 - rate) where an element is kept, else 0
struct Dropout {
  View x;                   // (T, K), strided rows
  View out;                 // (T, K), strided rows; may alias x
  float rate = 0;           // at least 0, below 1
  uint64_t key = 0;         // of the random numbers
  int64_t first_row = 0;    // number of the first row
  bool accumulate = false;  // out += (added in fp32, rounded once)
};

// An element is dropped if its random bits are below this.
inline uint32_t dropout_threshold(float rate) { return static_cast<uint32_t>(static_cast<double>(rate) * 0x1.0p32); }
inline float dropout_scale(float rate) { return 1.0f / (1.0f - rate); }

MEGATRAIN_HOST_DEVICE bool is_dropped(uint64_t row_key, int64_t col, uint32_t threshold) {
  return element_bits(row_key, static_cast<uint32_t>(col)) < threshold;
}

}  // namespace megatrain
