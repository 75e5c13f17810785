// RMSNorm over groups: a row of x has `groups` vectors of the weight's size (1 for the model's norms, the number of
// heads for q/k norms). y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight) + residual, in fp32, rounded once.
// Without a weight the factor is 1, and the size of a vector is that of a row over `groups`. With `centred` it is a
// layer norm without a bias: each vector's mean is subtracted from x first.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

struct RmsNormForward {
  View x;                   // (T, groups * D), strided rows
  View weight;              // (D) or empty
  float weight_offset = 0;  // 0, or 1 if a model stores its norms' weights minus one
  float eps;
  int64_t groups = 1;
  bool centred = false;
  View residual;   // (T, groups * D), strided rows, added to the result, or empty; may alias out
  View out;        // (T, groups * D), strided rows; may alias x
  float* inv_rms;  // (T * groups) saved for backward
};

struct RmsNormBackward {
  View x;       // (T, groups * D) the forward's input
  View weight;  // (D) or empty
  float weight_offset = 0;
  const float* inv_rms;  // (T * groups)
  int64_t groups = 1;
  bool centred = false;
  View grad_out;     // (T, groups * D), strided rows
  View residual;     // (T, groups * D) added to the result, or empty; may alias grad_x
  View grad_x;       // (T, groups * D) = residual + d; may alias grad_out
  View grad_weight;  // (D) fp32; empty: not wanted
  bool accumulate;   // grad_weight += (true) or = (false)
};

}  // namespace megatrain
