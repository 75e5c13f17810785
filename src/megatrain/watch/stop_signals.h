// Turns SIGINT, SIGTERM and SIGHUP into a wish to end a watch. SIGPIPE is ignored. There is nothing to save, so nothing
// is printed.
#pragma once

#include <csignal>

namespace megatrain {

class StopSignals {
 public:
  StopSignals();  // only one at a time in a process
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const volatile std::sig_atomic_t* stop() const;  // 0, then the signal's number

  // Waits until the descriptor accepts PIPE_BUF bytes at once, however long its reader takes. False if a signal arrived
  // first; none is missed, whenever it arrives.
  bool wait_for_room(int descriptor) const;

 private:
  struct sigaction before_[4];
};

}  // namespace megatrain
