// Turns SIGINT into a wish to stop, while megatrain works for a Python program. Python's own handler would only set a
// flag that nobody reads before the call returns.
#pragma once

#include <csignal>

namespace megatrain {

class Interrupt {
 public:
  // `watches`: false where ctrl-C is not to become KeyboardInterrupt: outside Python's main thread, and under a handler
  // of the program's own. At most one object watches.
  // `answer` is written to standard error at the first SIGINT; it must be a literal.
  Interrupt(bool watches, const char* answer);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const volatile std::sig_atomic_t* stop() const;  // 0, then SIGINT
  void ask();                                      // as a SIGINT does

 private:
  bool watches_;
  volatile std::sig_atomic_t own_ = 0;  // if it does not watch
  struct sigaction before_ {};
};

}  // namespace megatrain
