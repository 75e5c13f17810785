#include "megatrain/data/tokenize_progress.h"

#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"

namespace megatrain {

TokenizeProgress::~TokenizeProgress() {
  if (told_) end_log_status();
}

std::string TokenizeProgress::line(double seconds, double fraction, int64_t tokens) const {
  const double done = fraction - first_fraction_;
  std::string text = fmt::format("tokenising {}: {:.0f}%, {} tokens", name_, 100 * fraction, format_count(tokens));
  if (seconds > 0 && done > 0)
    text += fmt::format(", {} tokens/s, {} left",
                        format_count(std::llround(static_cast<double>(tokens - first_tokens_) / seconds)),
                        format_duration(seconds * (1 - fraction) / done));
  return text;
}

void TokenizeProgress::at(double fraction, int64_t tokens) {
  constexpr double kFirst = 0.5;                        // seconds; shorter work needs no line
  const double between = log_is_terminal() ? 0.5 : 10;  // seconds
  const double now = now_s();
  if (!begun_) {
    begun_ = true;
    start_s_ = now;
    first_fraction_ = fraction;
    first_tokens_ = tokens;
    return;
  }
  if (now - (told_ ? told_s_ : start_s_) < (told_ ? between : kFirst)) return;
  told_ = true;
  told_s_ = now;
  log_status(line(now - start_s_, fraction, tokens));
}

}  // namespace megatrain
