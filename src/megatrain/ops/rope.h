// Rotary position embedding in the "half" form of Hugging Face: of the first R elements of a head, element i pairs with
// i + R/2; the others stay as they are.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

// In place on `heads` heads of every row. cos/sin already carry the attention factor of the scaling.
struct Rope {
  View x;  // (T, heads * D), strided rows: the q and k part of the qkv product
  int64_t heads;
  int64_t head_dim;          // D
  int64_t rotary_dim;        // R, even, at most D
  const int32_t* positions;  // (T)
  const float* cos;          // (max position, R/2)
  const float* sin;
  bool backward;  // rotate by the negative angle
};

}  // namespace megatrain
