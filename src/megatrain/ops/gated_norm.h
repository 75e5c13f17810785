// RMSNorm over the heads of a row, times a gate: y = x / sqrt(mean(x^2) + eps) * weight * silu(z), in fp32, rounded
// once. The weight is shared by the heads.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

struct GatedNormForward {
  View x;       // (T, heads * D), strided rows
  View z;       // (T, heads * D), strided rows
  View weight;  // (D)
  float eps;
  View out;  // (T, heads * D), strided rows; may alias x or z
};

// Recomputes the norm's factor from x.
struct GatedNormBackward {
  View x;       // (T, heads * D) the forward's inputs
  View z;       // (T, heads * D)
  View weight;  // (D)
  float eps;
  View grad_out;     // (T, heads * D), strided rows
  View grad_x;       // (T, heads * D), strided rows; may alias x or grad_out
  View grad_z;       // (T, heads * D), strided rows; may alias z
  View grad_weight;  // (D) fp32; empty: not wanted
  bool accumulate;   // grad_weight += (true) or = (false)
};

}  // namespace megatrain
