#include "megatrain/optim/learning_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

// Rounds up, but tolerates rounding errors: 0.1 of 30 steps is 3, although 0.1 * 30 is slightly above it.
int64_t fraction_of(int64_t steps, double fraction) {
  const double exact = fraction * static_cast<double>(steps);
  const double nearest = std::round(exact);
  return static_cast<int64_t>(std::fabs(exact - nearest) < 1e-9 * exact ? nearest : std::ceil(exact));
}

// The fraction of (lr - min_lr) that step c + 1 uses.
double decay_factor(const LearningRate& s, int64_t c) {
  if (s.kind == ScheduleKind::constant) return 1;
  const int64_t span = s.kind == ScheduleKind::wsd ? decay_steps(s) : s.steps - warmup_steps(s);
  const int64_t left = s.steps - c;
  if (left <= 0) return 0;
  if (left >= span) return 1;
  if (s.kind != ScheduleKind::cosine) return static_cast<double>(left) / static_cast<double>(span);
  return 0.5 * (1 + std::cos(std::numbers::pi * (static_cast<double>(span - left) / static_cast<double>(span))));
}

}  // namespace

ScheduleKind parse_schedule(const std::string& name) {
  if (name == "constant") return ScheduleKind::constant;
  if (name == "linear") return ScheduleKind::linear;
  if (name == "cosine") return ScheduleKind::cosine;
  if (name == "wsd") return ScheduleKind::wsd;
  fail_config(fmt::format("optim.schedule is \"{}\"; it must be one of constant, linear, cosine, wsd", name));
}

void check_schedule(const LearningRate& s) {
  if (!(s.lr >= 0) || !std::isfinite(s.lr)) {
    fail_config(fmt::format("optim.lr is {}; it must be a number of at least 0", s.lr));
  }
  if (!(s.min_lr >= 0 && s.min_lr <= s.lr)) {
    fail_config(fmt::format("optim.min_lr is {}; it must be between 0 and optim.lr, which is {}", s.min_lr, s.lr));
  }
  if (!(s.warmup >= 0 && s.warmup < 0x1.0p53) || (s.warmup >= 1 && s.warmup != std::floor(s.warmup))) {
    fail_config(fmt::format("optim.warmup is {}; it must be a whole number of steps, or a fraction of the run below 1",
                            s.warmup));
  }
  if (!(s.decay > 0 && s.decay <= 1)) {
    fail_config(fmt::format("optim.decay is {}; it must be a fraction of the run above 0 and at most 1", s.decay));
  }
  if (s.steps < 0) fail_config(fmt::format("steps is {}; it must be at least 0", s.steps));
}

int64_t warmup_steps(const LearningRate& s) {
  if (s.warmup >= 1) return static_cast<int64_t>(s.warmup);
  const double exact = s.warmup * static_cast<double>(s.steps);
  int64_t steps = s.round_down  ? static_cast<int64_t>(std::floor(exact))
                  : s.from_zero ? static_cast<int64_t>(std::ceil(exact))
                                : fraction_of(s.steps, s.warmup);
  if (s.warmup_most > 0) steps = std::min(steps, s.warmup_most);
  return s.round_down && steps == 1 ? 2 : steps;
}

int64_t decay_steps(const LearningRate& s) {
  return std::clamp<int64_t>(fraction_of(s.steps, s.decay), 0, std::max<int64_t>(0, s.steps - warmup_steps(s)));
}

double learning_rate(const LearningRate& s, int64_t step) {
  const int64_t warmup = warmup_steps(s);
  if (s.from_zero && step <= warmup) return s.lr * (static_cast<double>(step - 1) / static_cast<double>(warmup));
  if (step <= warmup) return s.lr * static_cast<double>(step) / static_cast<double>(warmup);
  const double factor = decay_factor(s, step - 1);
  return factor == 1 ? s.lr : s.min_lr + (s.lr - s.min_lr) * factor;
}

}  // namespace megatrain
