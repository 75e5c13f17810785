#include "megatrain/cli/progress.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/log.h"

namespace megatrain {

std::string format_duration(double seconds) {
  const int64_t s = std::llround(std::clamp(seconds, 0.0, 1e12));
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (s < kMinute) return fmt::format("{}s", s);
  if (s < kHour) return fmt::format("{}m{:02}s", s / kMinute, s % kMinute);
  if (s < kDay) return fmt::format("{}h{:02}m", s / kHour, s % kHour / kMinute);
  return fmt::format("{}d{:02}h", s / kDay, s % kDay / kHour);
}

void StepClock::add(double seconds) {
  constexpr double kWindow = 20;  // steps
  if (steps_ <= 1) {
    mean_ = seconds;
  } else {
    mean_ += (seconds - mean_) / std::min(static_cast<double>(steps_), kWindow);
  }
  ++steps_;
}

Progress::~Progress() { end_log_status(); }

std::string Progress::line(const StepMetrics& m) {
  clock_.add(m.report.seconds);
  return metrics_line(
      m, m.step < m.steps ? format_duration(clock_.seconds() * static_cast<double>(m.steps - m.step)) : "");
}

void Progress::show(const StepMetrics& m) {
  constexpr double kStaysEvery = 10;  // seconds
  const bool stays = stayed_s_ == 0 || m.step >= m.steps || now_s() - stayed_s_ >= kStaysEvery;
  log_status(line(m));
  if (stays) {
    end_log_status();
    stayed_s_ = now_s();
  }
}

}  // namespace megatrain
