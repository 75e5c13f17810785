// What adapters compute between their halves, in AdapterBinding::scratch. R is the sum of the ranks of a matmul's
// adapters, N that of their rows.
#pragma once

#include <cstdint>

#include "megatrain/model/layers/carve.h"
#include "megatrain/model/layers/linear.h"

namespace megatrain {

struct LinearInner {
  int64_t ranks = 0;  // R
  int64_t in = 0;
  int64_t out = 0;  // N with DoRA, else 0
  bool drops = false;

  View values;              // (T, R) x A^T
  View grads;               // (T, R) the gradient of s (x A^T)
  View dropped;             // (T, in) with dropout: the input of one adapter, or the gradient of one
  View outs;                // (T, N) with DoRA: what its factors multiply, or gradients of that
  View factors, inv_norms;  // (1, N) fp32, with DoRA

  void carve(Carver& carver, DType dtype, int64_t rows) {
    values = carver.view(dtype, rows, ranks);
    grads = carver.view(dtype, rows, ranks);
    if (drops) dropped = carver.view(dtype, rows, in);
    if (out == 0) return;
    outs = carver.view(dtype, rows, out);
    factors = carver.view(DType::f32, 1, out);
    inv_norms = carver.view(DType::f32, 1, out);
  }
};

struct Linear::Inner : LinearInner {};

}  // namespace megatrain
