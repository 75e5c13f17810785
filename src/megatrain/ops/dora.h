// What DoRA adds to LoRA's matmuls: a factor for every row of an adapted weight, and columns of activations times it.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

// factors[i] = magnitude[i] / |W_i + s (B A)_i|, with the Euclidean norm of row i. Sums are fp32 or wider, whatever the
// dtype of the operands. A row of zeros has the factor 0.
struct DoraFactors {
  View weight;      // (N, K)
  View a;           // (r, K)
  View b;           // (N, r)
  float scale = 1;  // s
  View magnitude;   // (N)
  View factors;     // (N) fp32, out
  View inv_norms;   // (N) fp32, out: 1 / the norms, or 0; empty: not wanted
};

// out = (factors + offset) x times + bias + residual, by columns, in fp32, rounded once. All are of one dtype, but the
// factors.
struct ScaleColumns {
  View x;            // (T, N), strided rows
  View factors;      // (N) fp32
  float offset = 0;  // added to each factor
  View times;        // (T, N), strided rows, multiplied element by element, or empty
  View bias;         // (N) or empty
  View residual;     // (T, N), strided rows, or empty; may alias out
  View out;          // (T, N), strided rows; may alias x
};

}  // namespace megatrain
