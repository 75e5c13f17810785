// The matmuls of a linear layer. They accumulate in fp32 whatever the dtype of the operands.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

// out = scale x weight^T + bias + residual, rounded once. With a scale there is no bias.
struct LinearForward {
  View x;         // (T, K), strided rows
  View weight;    // (N, K)
  View bias;      // (N) or empty
  View residual;  // (T, N) of out's dtype, strided rows, or empty; may alias out
  View out;       // (T, N), strided rows; dtype of x or fp32
  float scale = 1;
};

// grad_x = scale grad_out weight
struct LinearBackwardInput {
  View grad_out;            // (T, N), strided rows
  View weight;              // (N, K)
  View grad_x;              // (T, K); dtype of grad_out or fp32
  bool accumulate = false;  // grad_x += (added in fp32, rounded once)
  float scale = 1;
};

// grad_weight = scale grad_out^T x, grad_bias = column sums of grad_out
struct LinearBackwardWeight {
  View grad_out;     // (T, N), strided rows
  View x;            // (T, K), strided rows
  View grad_weight;  // (N, K) fp32; empty: only the bias is wanted
  View grad_bias;    // (N) fp32 or empty
  bool accumulate;   // += (true) or = (false)
  float scale = 1;
};

}  // namespace megatrain
