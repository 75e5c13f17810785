// Reports how far a long piece of work is: a status line now and then (none for short work), and the answer to a signal
// (base/work.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "megatrain/base/log.h"
#include "megatrain/base/work.h"

namespace megatrain {

class WorkProgress {
 public:
  // `total` is in any unit. The line is "WHAT: 45%, 12s left", at most one every `between_s` seconds.
  WorkProgress(std::string what, int64_t total, double between_s = log_is_terminal() ? 1 : 10,
               WorkOptions options = {});
  ~WorkProgress();
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  // Thread-safe.
  void add(int64_t done);

 private:
  std::string what_;
  Work work_;
  double total_, between_s_, start_s_;
  std::atomic<int64_t> done_{0};
  std::atomic<double> told_s_;
};

}  // namespace megatrain
