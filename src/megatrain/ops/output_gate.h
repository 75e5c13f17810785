// A gate on the outputs of attention: a matrix of gates, of which each multiplies one output.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

// out = x * sigmoid(gate)
struct OutputGateForward {
  View x;     // (R, n)
  View gate;  // (R, n)
  View out;   // (R, n)
};

struct OutputGateBackward {
  View x;          // (R, n)
  View gate;       // (R, n)
  View grad_out;   // (R, n)
  View grad_x;     // (R, n) may alias grad_out
  View grad_gate;  // (R, n)
};

}  // namespace megatrain
