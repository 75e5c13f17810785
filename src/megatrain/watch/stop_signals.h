// SIGINT, SIGTERM and SIGHUP as a wish to end a watch. SIGPIPE is ignored. Nothing has to be saved, so nothing is said.
#pragma once

#include <csignal>

namespace megatrain {

class StopSignals {
 public:
  StopSignals();  // one at a time in a process
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const volatile std::sig_atomic_t* stop() const;  // 0, then the number of the signal

  // Waits until the descriptor takes PIPE_BUF bytes at once, for as long as its reader makes it wait. False: a signal
  // came before; none is missed, whenever it comes.
  bool wait_for_room(int descriptor) const;

 private:
  struct sigaction before_[4];
};

}  // namespace megatrain
