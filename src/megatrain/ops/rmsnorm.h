// RMSNorm over groups: a row of x holds `groups` vectors of the weight's size (1 for the model's norms, the number of
// heads for q/k norms). y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight) + residual, in fp32, rounded once.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

struct RmsNormForward {
  View x;                   // (T, groups * D), strided rows
  View weight;              // (D)
  float weight_offset = 0;  // 0, or 1 where a model stores its norms' weights less one
  float eps;
  int64_t groups = 1;
  View residual;   // (T, groups * D), strided rows, added to the result, or empty; may be out itself
  View out;        // (T, groups * D), strided rows; may be x itself
  float* inv_rms;  // (T * groups) saved for backward
};

struct RmsNormBackward {
  View x;       // (T, groups * D) the forward's input
  View weight;  // (D)
  float weight_offset = 0;
  const float* inv_rms;  // (T * groups)
  int64_t groups = 1;
  View grad_out;     // (T, groups * D), strided rows
  View residual;     // (T, groups * D) added to the result, or empty; may be grad_x itself
  View grad_x;       // (T, groups * D) = residual + d; may be grad_out itself
  View grad_weight;  // (D) fp32, or empty: not wanted
  bool accumulate;   // grad_weight += (true) or = (false)
};

}  // namespace megatrain
