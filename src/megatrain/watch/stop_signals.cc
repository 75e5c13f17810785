#include "megatrain/watch/stop_signals.h"

#include <poll.h>

#include <cerrno>
#include <iterator>

namespace megatrain {

namespace {

constexpr int kWatched[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
volatile std::sig_atomic_t stop_wish = 0;  // a handler can only reach a global

void on_signal(int signal) { stop_wish = signal; }

}  // namespace

StopSignals::StopSignals() {
  stop_wish = 0;
  struct sigaction action {};
  for (size_t i = 0; i < std::size(kWatched); ++i) {
    action.sa_handler = kWatched[i] == SIGPIPE ? SIG_IGN : on_signal;
    ::sigaction(kWatched[i], &action, &before_[i]);
    if (kWatched[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) ::sigaction(SIGHUP, &before_[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kWatched); ++i) ::sigaction(kWatched[i], &before_[i], nullptr);
}

const volatile std::sig_atomic_t* StopSignals::stop() const { return &stop_wish; }

bool StopSignals::wait_for_room(int descriptor) const {
  // Signals are delivered only within ppoll, so that none arrives between checking the wish and waiting.
  sigset_t held, open;
  sigemptyset(&held);
  for (const int signal : kWatched) sigaddset(&held, signal);
  ::pthread_sigmask(SIG_BLOCK, &held, &open);
  pollfd room{.fd = descriptor, .events = POLLOUT};
  while (stop_wish == 0 && ::ppoll(&room, 1, nullptr, &open) < 0 && errno == EINTR) {
  }
  ::pthread_sigmask(SIG_SETMASK, &open, nullptr);
  return stop_wish == 0;
}

}  // namespace megatrain
