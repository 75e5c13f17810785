// The scalars that AdamW needs for a step: computed once in double, rounded once to fp32.
#pragma once

#include <cstdint>
#include <span>

#include "megatrain/ops/adamw.h"

namespace megatrain {

struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // 0 for tensors without decay
  double clip_factor = 1;
  int64_t t = 1;      // number of this update, from 1
  uint64_t seed = 0;  // for stochastic rounding
};

AdamWScalars adamw_scalars(const AdamWStep& step);

// The global norm from the sums of squares of all records' parts, summed in that order.
double gradient_norm(std::span<const double> squares);

// clip_factor_of (ops/gradient.h) for these sums: NaN when they are not finite.
double clip_factor(std::span<const double> squares, double clip);

}  // namespace megatrain
