#include "megatrain/python/interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace megatrain {

namespace {

// What a handler can reach.
volatile std::sig_atomic_t interrupted = 0;
const char* volatile answer_text = "";

void on_interrupt(int signal) {
  if (interrupted != 0) return;
  interrupted = signal;
  const int saved_errno = errno;
  const char* const text = answer_text;
  [[maybe_unused]] const ssize_t dropped = ::write(STDERR_FILENO, text, std::strlen(text));
  errno = saved_errno;
}

}  // namespace

Interrupt::Interrupt(bool watches, const char* answer) : watches_(watches) {
  if (!watches_) return;
  interrupted = 0;
  answer_text = answer;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &before_);
}

Interrupt::~Interrupt() {
  if (watches_) ::sigaction(SIGINT, &before_, nullptr);
}

const volatile std::sig_atomic_t* Interrupt::stop() const { return watches_ ? &interrupted : &own_; }

void Interrupt::ask() { (watches_ ? interrupted : own_) = SIGINT; }

}  // namespace megatrain
