#include "megatrain/cli/progress.h"

#include <algorithm>

#include "megatrain/base/clock.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"

namespace megatrain {

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

std::vector<LogField> Progress::fields(const StepMetrics& m) {
  clock_.add(m.report.seconds);
  return metrics_fields(
      m, m.step < m.steps ? format_duration(clock_.seconds() * static_cast<double>(m.steps - m.step)) : "");
}

void Progress::show(const StepMetrics& m) {
  constexpr double kStaysEvery = 10;  // seconds
  const bool stays = stayed_s_ == 0 || m.step >= m.steps || now_s() - stayed_s_ >= kStaysEvery;
  log_status(fields(m));
  if (stays) {
    end_log_status();
    stayed_s_ = now_s();
  }
}

}  // namespace megatrain
