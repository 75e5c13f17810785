// What happens to a layer's summed gradient before it leaves the device: rounded once, and its squares summed.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr int64_t kNormBlock = 65536;  // elements of one fp64 partial

// out = grad rounded to out's dtype (bf16: to nearest even; fp32: a copy).
// partials[b] = sum of squares, in fp64, of the rounded elements [b * kNormBlock, (b + 1) * kNormBlock), added in an
// order fixed by the block alone. Then *sum_of_squares = the partials added in index order.
struct FinishGradient {
  View grad;               // (n) fp32
  View out;                // (n) bf16 or fp32
  double* partials;        // (ceil(n / kNormBlock)) scratch
  double* sum_of_squares;  // one value: non-finite when any element is
};

// *loss_sum = sum over tokens of loss in fp64 by index order (fixed blocks); *correct_sum likewise.
struct SumLosses {
  const float* loss;       // (T)
  const int32_t* correct;  // (T)
  int64_t tokens;
  double* loss_sum;
  int64_t* correct_sum;
};

}  // namespace megatrain
