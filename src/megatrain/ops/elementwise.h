// SwiGLU.
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
  View out;           // (T, F) the forward's output once more, bit for bit; or empty
};

}  // namespace megatrain
