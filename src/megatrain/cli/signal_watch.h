// Signals as wishes: SIGINT, SIGTERM and SIGHUP to stop at a place from which the work can go on, SIGUSR1 to save and
// go on. A thread answers each with a line at once, whatever the process is busy with (base/work.h).
//
// A second signal to stop ends the process where it stands, with 128 + its number. Those that follow the first within
// kSameWishMs are the same wish: a terminal that closes, and a wrapper that passes a signal on, send it twice.
// SIGHUP stays ignored where it was when the process began (nohup). SIGPIPE is ignored: log lines without a reader are
// dropped.
#pragma once

#include <csignal>
#include <string>
#include <thread>

namespace megatrain {

class SignalWatch {
 public:
  static constexpr int64_t kSameWishMs = 300;

  // One at a time in a process. `saves`: SIGUSR1 has something to save.
  explicit SignalWatch(bool saves);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // 0 until the first signal to stop, then its number.
  const volatile std::sig_atomic_t* stop() const;

  // Whether there was a SIGUSR1 since the last call.
  bool take_save_wish();

 private:
  void answer_signals() const;
  std::string answer(int signal) const;

  bool saves_;
  int reader_ = -1;  // of the pipe the handlers write to
  struct sigaction before_[5];
  std::thread thread_;
};

}  // namespace megatrain
