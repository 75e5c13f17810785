#include "megatrain/base/work_progress.h"

#include <utility>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/units.h"

namespace megatrain {

WorkProgress::WorkProgress(std::string what, int64_t total, double between_s, WorkOptions options)
    : what_(std::move(what)),
      work_(what_, std::move(options)),
      total_(static_cast<double>(total)),
      between_s_(between_s),
      start_s_(now_s()),
      told_s_(start_s_) {}

WorkProgress::~WorkProgress() { end_log_status(); }

void WorkProgress::add(int64_t done) {
  const double part = static_cast<double>(done_.fetch_add(done) + done) / total_;
  work_.advance(part);
  const double now = now_s();
  double told = told_s_.load();
  if (now - told < between_s_ || !told_s_.compare_exchange_strong(told, now)) return;
  log_status(
      fmt::format("{}: {:.0f}%, {} left", what_, 100 * part, format_duration((now - start_s_) * (1 - part) / part)));
}

}  // namespace megatrain
