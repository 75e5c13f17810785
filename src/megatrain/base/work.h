// What the process is doing now, for the thread that answers a signal. There is one such list, as there is one log. The
// innermost live Work is what the process does now.
#pragma once

#include <string>

namespace megatrain {

struct WorkOptions {
  double expected_s = 0;      // how long it should take; 0: unknown
  bool ends_at_stop = false;  // a stop signal ends it before it is done
  std::string then;           // what follows if the process was asked to stop; empty: what the enclosing Work says
};

class Work {
 public:
  // `what` completes "finishing …": "step 12".
  explicit Work(std::string what, WorkOptions options = {});
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // These are thread-safe.
  void advance(double fraction);  // the fraction that is done
  void become(std::string what, std::string then);

 private:
  friend struct WorkNow work_now();

  std::string what_;
  WorkOptions options_;
  double start_s_, fraction_ = 0;
};

struct WorkNow {
  std::string what;      // "step 12"; empty: idle
  std::string duration;  // "about 3s left", "for 5s so far"
  bool ends_at_stop = false;
  std::string then;
};
WorkNow work_now();

}  // namespace megatrain
