// What the recurrence of Mamba 2 multiplies by, for each token and head:
//   step = clamp(softplus(dt + dt_bias), least, most)
//   g = -exp(a_log) * step                              the logarithm of what the state keeps, at most 0
// softplus is that of delta_gates.h. All in fp32. No gradient passes where the step lies beyond a limit; at the limit
// it does, as in PyTorch.
#pragma once

#include <limits>

#include "megatrain/ops/delta_gates.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

struct StepLimits {
  float least = 0;
  float most = std::numeric_limits<float>::infinity();
};

struct SsdGatesForward {
  View dt;       // (T, heads), strided rows
  View a_log;    // (heads)
  View dt_bias;  // (heads)
  StepLimits limits;
  View step;  // (T, heads) fp32
  View g;     // (T, heads) fp32
};

struct SsdGatesBackward {
  View dt;       // (T, heads) the forward's inputs
  View a_log;    // (heads)
  View dt_bias;  // (heads)
  StepLimits limits;
  View grad_step;     // (T, heads) fp32
  View grad_g;        // (T, heads) fp32
  View grad_dt;       // (T, heads), strided rows; may alias dt
  View grad_a_log;    // (heads) fp32; empty: not wanted
  View grad_dt_bias;  // (heads) fp32; empty: not wanted
  bool accumulate;    // gradients of a_log and dt_bias += (true) or = (false)
};

}  // namespace megatrain
