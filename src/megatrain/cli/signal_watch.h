// Turns signals into requests: SIGINT, SIGTERM and SIGHUP stop at a point from which the work can be resumed, SIGUSR1
// saves and continues. A thread acknowledges each with a line at once, whatever the process is doing (base/work.h).
//
// A second stop signal ends the process immediately with exit code 128 + its number. Stop signals within kSameWishMs of
// the first are the same request: a closing terminal, or a wrapper that forwards a signal, sends it twice.
//
// SIGHUP stays ignored if it was when the process began (nohup). SIGPIPE is ignored: log lines without a reader are
// dropped.
#pragma once

#include <csignal>
#include <string>
#include <thread>

namespace megatrain {

class SignalWatch {
 public:
  static constexpr int64_t kSameWishMs = 300;

  // At most one object per process. `saves`: whether SIGUSR1 has anything to save.
  explicit SignalWatch(bool saves);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // 0 until the first stop signal, then its number.
  const volatile std::sig_atomic_t* stop() const;

  // Whether a SIGUSR1 arrived since the last call.
  bool take_save_wish();

 private:
  void answer_signals() const;
  std::string answer(int signal) const;

  bool saves_;
  int reader_ = -1;  // read end of the pipe that the handlers write to
  struct sigaction before_[5];
  std::thread thread_;
};

}  // namespace megatrain
