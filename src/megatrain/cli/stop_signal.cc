#include "megatrain/cli/stop_signal.h"

#include <initializer_list>

namespace megatrain {

namespace {

volatile std::sig_atomic_t stop_signal = 0;

void on_signal(int signal) { stop_signal = signal; }

}  // namespace

const volatile std::sig_atomic_t* watch_stop_signals() {
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  return &stop_signal;
}

}  // namespace megatrain
