// Rotary position embedding of the first R elements of a head. In Hugging Face's "half" form element i pairs with i +
// R/2; otherwise elements 2i and 2i + 1 are a pair. The other elements are unchanged.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

// In place on `heads` heads of every row. cos and sin already include the attention factor of the scaling.
struct Rope {
  View x;  // (T, heads * D), strided rows: the q and k columns of qkv
  int64_t heads;
  int64_t head_dim;          // D
  int64_t rotary_dim;        // R, even, at most D
  bool pairs = false;        // 2i with 2i + 1
  const int32_t* positions;  // (T)
  const float* cos;          // (max position, R/2)
  const float* sin;
  bool backward;  // rotate by the negative angle
};

}  // namespace megatrain
