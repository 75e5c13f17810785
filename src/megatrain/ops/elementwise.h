// SwiGLU and the residual add.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

// out = silu(gate) * up, where a row of gate_up is gate then up
struct SwigluForward {
  View gate_up;  // (T, 2F)
  View out;      // (T, F)
};

struct SwigluBackward {
  View gate_up;       // (T, 2F)
  View grad_out;      // (T, F)
  View grad_gate_up;  // (T, 2F); may be gate_up itself
};

// out = a + b, rounded once; out may be a or b
struct Add {
  View a, b, out;  // (T, H)
};

}  // namespace megatrain
