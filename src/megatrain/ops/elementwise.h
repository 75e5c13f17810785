// The activations of MLPs: gated ones (SwiGLU, GeGLU), and one without a gate.
#pragma once

#include <cstdint>

#include "megatrain/tensor/view.h"

namespace megatrain {

// All are gate * sigmoid(z). silu: z = gate. gelu_tanh: z = 2 sqrt(2 / pi) (gate + 0.044715 gate^3), which is the tanh
// form of GELU, as 1 + tanh(u) = 2 sigmoid(2u). gelu_sigmoid: z = 1.702 gate. relu_squared has no gate: it is
// max(x, 0)^2, and where others read rows of gate then up, (T, 2F), it reads rows of x, (T, F).
enum class Activation { silu, gelu_tanh, gelu_sigmoid, relu_squared };

constexpr bool has_gate(Activation activation) { return activation != Activation::relu_squared; }

// Columns that the activation reads for each that it writes.
constexpr int64_t parts_of(Activation activation) { return has_gate(activation) ? 2 : 1; }

// activation(gate) * (up + up_offset), after clamping gate from above and up on both sides to `limit`. Without a gate
// there is neither.
struct Gate {
  Activation activation = Activation::silu;
  float limit = 0;  // 0: none
  float up_offset = 0;
};

// out = activation(gate) * up, where a row of gate_up is gate then up. With a row gate, each row of that is multiplied
// by the sigmoid of its own.
struct GatedForward {
  View gate_up;   // (T, 2F), or (T, F) without a gate
  View row_gate;  // (T, 1), or empty
  View out;       // (T, F)
  Activation activation = Activation::silu;
};

struct GatedBackward {
  View gate_up;        // as in the forward
  View row_gate;       // (T, 1), or empty
  View grad_out;       // (T, F)
  View grad_gate_up;   // as gate_up, which it may alias
  View grad_row_gate;  // (T, 1); empty without a row gate
  View out;            // (T, F) the forward's output, recomputed bit for bit; or empty
  Activation activation = Activation::silu;
};

// out = times factor x, in fp32, rounded once. All are of one dtype.
struct ScaleAll {
  View x;       // (T, N), strided rows
  View factor;  // (1), or empty: 1
  float times = 1;
  View out;  // (T, N), strided rows; may alias x
};

// z = gate (kGeluLinear + kGeluCubic gate^2)
inline constexpr float kGeluLinear = 0x1.988454p+0f;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0x1.2444f2p-4f;   // 0.044715 times kGeluLinear
inline constexpr float kGeluSigmoid = 1.702f;         // z = 1.702 gate

}  // namespace megatrain
