// What the process is busy with, for another thread that has to say it: the line that answers a signal. As there is one
// log, there is one such list; the innermost Work that stands is what the process does now.
#pragma once

#include <string>

namespace megatrain {

struct WorkOptions {
  double expected_s = 0;      // how long it should take; 0: not known
  bool ends_at_stop = false;  // a signal to stop ends it before it is done
  std::string then;           // what follows when the process was asked to stop; empty: as the Work around it says
};

class Work {
 public:
  // `what` follows "finishing": "step 12".
  explicit Work(std::string what, WorkOptions options = {});
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // All thread-safe.
  void advance(double fraction);  // of it that is done
  void become(std::string what, std::string then);

 private:
  friend struct WorkNow work_now();

  std::string what_;
  WorkOptions options_;
  double start_s_, fraction_ = 0;
};

struct WorkNow {
  std::string what;      // "step 12"; empty: nothing
  std::string duration;  // "about 3s left", "for 5s so far"
  bool ends_at_stop = false;
  std::string then;
};
WorkNow work_now();

}  // namespace megatrain
