// The gates of the gated delta rule, for each token and value head:
//   beta = sigmoid(b)                                how much of a value is written
//   g = -exp(a_log) * softplus(a + dt_bias)          the logarithm of what the state keeps, at most 0
// softplus(x) = log(1 + exp(x)), and x itself above 20, as in PyTorch. All in fp32.
#pragma once

#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr float kSoftplusThreshold = 20.0f;

struct DeltaGatesForward {
  View a;        // (T, N), strided rows
  View b;        // (T, N), strided rows
  View a_log;    // (N)
  View dt_bias;  // (N)
  View g;        // (T, N) fp32
  View beta;     // (T, N) fp32
};

struct DeltaGatesBackward {
  View a;             // (T, N) the forward's inputs
  View b;             // (T, N)
  View a_log;         // (N)
  View dt_bias;       // (N)
  View grad_g;        // (T, N) fp32
  View grad_beta;     // (T, N) fp32
  View grad_a;        // (T, N), strided rows; may alias a
  View grad_b;        // (T, N), strided rows; may alias b
  View grad_a_log;    // (N) fp32; empty: not wanted
  View grad_dt_bias;  // (N) fp32; empty: not wanted
  bool accumulate;    // gradients of a_log and dt_bias += (true) or = (false)
};

}  // namespace megatrain
