#include "megatrain/cli/progress.h"

#include "megatrain/base/clock.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"

namespace megatrain {

Progress::~Progress() { end_log_status(); }

std::vector<LogField> Progress::fields(const StepMetrics& m) {
  pace_.add(m.report.own_seconds(), m.report.paused_s);
  return metrics_fields(
      m, m.step < m.steps ? format_duration(pace_.seconds() * static_cast<double>(m.steps - m.step)) : "");
}

void Progress::show(const StepMetrics& m) {
  constexpr double kStaysEvery = 10;  // seconds between lines that stay on a terminal
  const bool stays = stayed_s_ == 0 || m.step >= m.steps || now_s() - stayed_s_ >= kStaysEvery;
  log_status(fields(m));
  if (stays) {
    end_log_status();
    stayed_s_ = now_s();
  }
}

}  // namespace megatrain
