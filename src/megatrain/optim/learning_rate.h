// Learning-rate schedules. Step s = 1..steps is the optimizer's s-th update. With W warmup steps and c = s - 1 updates
// done before it:
//
//   s <= W     lr * s / W, so that the first step moves; with `from_zero` lr * c / W, as transformers does
//   constant   lr
//   linear     min_lr + (lr - min_lr) * (steps - c) / (steps - W)
//   cosine     min_lr + (lr - min_lr) * (1 + cos(pi * (c - W) / (steps - W))) / 2
//   wsd        lr, then over the last D steps min_lr + (lr - min_lr) * (steps - c) / D
//
// After the warmup these are transformers' get_*_schedule at c. Past `steps` the decaying ones stay at min_lr.
#pragma once

#include <cstdint>
#include <string>

namespace megatrain {

enum class ScheduleKind : uint8_t { constant, linear, cosine, wsd };

struct LearningRate {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 0;       // peak
  double min_lr = 0;   // final rate after decay; unused by `constant`
  double warmup = 0;   // steps, or below 1 a fraction of `steps` (rounded up)
  double decay = 0.1;  // wsd: the fraction of `steps` that decays (rounded up), at most what warmup leaves
  int64_t steps = 0;
  // Warmup as in transformers: the first step's rate is 0, and a fraction of `steps` is the ceiling of the product in
  // double precision.
  bool from_zero = false;
  // As in Axolotl: a fraction is rounded down, and a warmup of one step becomes two.
  bool round_down = false;
  int64_t warmup_most = 0;  // maximum number of steps for a fraction; 0: no limit
};

// "constant", "linear", "cosine", "wsd"; throws Error(bad_config) for other names.
ScheduleKind parse_schedule(const std::string& name);

// Throws Error(bad_config) for invalid fields.
void check_schedule(const LearningRate& schedule);

int64_t warmup_steps(const LearningRate& schedule);
int64_t decay_steps(const LearningRate& schedule);  // for wsd
double learning_rate(const LearningRate& schedule, int64_t step);

}  // namespace megatrain
