// A gate on the outputs of a mixer: a matrix of gates, of which each multiplies one output.
#pragma once

#include <cstdint>

#include "megatrain/tensor/view.h"

namespace megatrain {

// What multiplies an output: the sigmoid of its gate, silu(gate), or the gate itself.
enum class GateForm : uint8_t { sigmoid, silu, plain };

// out = x * form(gate)
struct OutputGateForward {
  View x;     // (R, n)
  View gate;  // (R, n)
  View out;   // (R, n) may alias x or gate
  GateForm form = GateForm::sigmoid;
};

struct OutputGateBackward {
  View x;          // (R, n)
  View gate;       // (R, n)
  View grad_out;   // (R, n)
  View grad_x;     // (R, n) may alias grad_out
  View grad_gate;  // (R, n) may alias gate
  GateForm form = GateForm::sigmoid;
};

}  // namespace megatrain
