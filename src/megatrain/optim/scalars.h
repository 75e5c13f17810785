// What AdamW needs of a step beside tensors: computed once in double, rounded once to fp32.
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
  int64_t t = 1;      // this update's number, from 1
  uint64_t seed = 0;  // of a step's random numbers
};

AdamWScalars adamw_scalars(const AdamWStep& step);

// The global norm from the sums of squares of all records' parts, added in their order.
double gradient_norm(std::span<const double> squares);

// clip_factor_of (ops/gradient.h) these sums: NaN when they are not finite.
double clip_factor(std::span<const double> squares, double clip);

}  // namespace megatrain
