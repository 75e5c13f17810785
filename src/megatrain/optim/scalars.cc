#include "megatrain/optim/scalars.h"

#include <cmath>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/ops/gradient.h"

namespace megatrain {

namespace {

// separates these random numbers from others of the same seed
constexpr uint64_t kRoundingPurpose = 0x726f756e64696e67;

}  // namespace

AdamWScalars adamw_scalars(const AdamWStep& step) {
  ensure(step.t >= 1, "AdamW counts its updates from 1");
  const double t = static_cast<double>(step.t);
  return {.clip = static_cast<float>(step.clip_factor),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta1 = static_cast<float>(1 - step.beta1),
          .one_minus_beta2 = static_cast<float>(1 - step.beta2),
          .inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(step.beta2, t))),
          .eps = static_cast<float>(step.eps),
          .step_size = static_cast<float>(step.lr / (1 - std::pow(step.beta1, t))),
          .decay = static_cast<float>(1 - step.lr * step.weight_decay),
          .random = random_bits(step.seed, kRoundingPurpose, static_cast<uint64_t>(step.t))};
}

namespace {

double sum_of(std::span<const double> squares) {
  double sum = 0;
  for (const double square : squares) sum += square;
  return sum;
}

}  // namespace

double gradient_norm(std::span<const double> squares) { return std::sqrt(sum_of(squares)); }

double clip_factor(std::span<const double> squares, double clip) { return clip_factor_of(sum_of(squares), clip); }

}  // namespace megatrain
