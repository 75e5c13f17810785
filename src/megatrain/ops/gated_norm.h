// RMSNorm over the groups of a row, and a gate, in fp32, rounded once:
//   norm first: y = x / sqrt(mean(x^2) + eps) * weight * silu(z)
//   gate first: u = x * silu(z);  y = u / sqrt(mean(u^2) + eps) * weight
// The groups share a weight of their size, or a weight of the row's size has a part for each.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

struct GatedNormForward {
  View x;       // (T, groups * D), strided rows
  View z;       // (T, groups * D), strided rows
  View weight;  // (D) or (groups * D)
  float eps;
  int64_t group = 0;  // D; 0: the weight's size
  bool gate_first = false;
  View out;  // (T, groups * D), strided rows; may alias x or z

  int64_t group_size() const { return group > 0 ? group : weight.cols; }
};

// Recomputes the norm's factor from x.
struct GatedNormBackward {
  View x;       // (T, groups * D) the forward's inputs
  View z;       // (T, groups * D)
  View weight;  // (D) or (groups * D)
  float eps;
  int64_t group = 0;  // as in the forward
  bool gate_first = false;
  View grad_out;     // (T, groups * D), strided rows
  View grad_x;       // (T, groups * D), strided rows; may alias x or grad_out
  View grad_z;       // (T, groups * D), strided rows; may alias z
  View grad_weight;  // as the weight, fp32; empty: not wanted
  bool accumulate;   // grad_weight += (true) or = (false)

  int64_t group_size() const { return group > 0 ? group : weight.cols; }
};

}  // namespace megatrain
