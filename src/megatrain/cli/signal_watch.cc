#include "megatrain/cli/signal_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/work.h"

namespace megatrain {

namespace {

constexpr int kWatched[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
constexpr char kEnd = 0;  // written to the pipe to end the thread: no signal has this number

// State shared with the handlers, which can only reach globals.
volatile std::sig_atomic_t stop_signal = 0;
std::atomic<int> first_stop{0};
std::atomic<int64_t> first_stop_ms{0};
std::atomic<bool> save_wish{false};
std::atomic<int> pipe_writer{-1};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

int64_t clock_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

[[noreturn]] void end_at_once(int signal) {
  constexpr std::string_view kLine = "\nmegatrain: a second signal: ended at once, nothing more is saved\n";
  pollfd error{.fd = STDERR_FILENO, .events = POLLOUT};
  if (::poll(&error, 1, 0) == 1 && (error.revents & POLLOUT) != 0) {
    [[maybe_unused]] const ssize_t dropped = ::write(STDERR_FILENO, kLine.data(), kLine.size());
  }
  ::_exit(128 + signal);
}

// Calls only async-signal-safe functions.
void on_signal(int signal) {
  const int saved_errno = errno;
  if (signal == SIGUSR1) {
    save_wish = true;
  } else {
    int none = 0;
    if (first_stop.compare_exchange_strong(none, signal)) {
      first_stop_ms = clock_ms();
      stop_signal = signal;
    } else if (first_stop_ms != 0 && clock_ms() - first_stop_ms >= SignalWatch::kSameWishMs) {
      end_at_once(signal);
    }
  }
  const char byte = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t dropped = ::write(pipe_writer, &byte, 1);
  errno = saved_errno;
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    default: return "SIGUSR1";
  }
}

}  // namespace

SignalWatch::SignalWatch(bool saves) : saves_(saves) {
  ensure(pipe_writer == -1, "signals are watched once");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_io(fmt::format("could not make a pipe: {}", std::strerror(errno)));
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);  // a handler must not block
  reader_ = ends[0];
  pipe_writer = ends[1];
  stop_signal = 0;
  first_stop = 0;
  first_stop_ms = 0;
  save_wish = false;

  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);  // the new thread inherits this mask, so handlers run on other threads
  thread_ = std::thread([this] { answer_signals(); });
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);

  struct sigaction action {};
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kWatched); ++i) {
    ::sigaction(kWatched[i], nullptr, &before_[i]);
    if (kWatched[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) continue;
    action.sa_handler = kWatched[i] == SIGPIPE ? SIG_IGN : on_signal;
    ::sigaction(kWatched[i], &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  for (size_t i = 0; i < std::size(kWatched); ++i) ::sigaction(kWatched[i], &before_[i], nullptr);
  const int writer = pipe_writer.exchange(-1);
  [[maybe_unused]] const ssize_t written = ::write(writer, &kEnd, 1);
  ::close(writer);
  thread_.join();
  ::close(reader_);
}

const volatile std::sig_atomic_t* SignalWatch::stop() const { return &stop_signal; }

bool SignalWatch::take_save_wish() { return save_wish.exchange(false); }

void SignalWatch::answer_signals() const {
  for (char byte = kEnd;;) {
    const ssize_t got = ::read(reader_, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got != 1 || byte == kEnd) return;
    log_info(answer(byte));
  }
}

std::string SignalWatch::answer(int signal) const {
  const WorkNow now = work_now();
  const std::string finishing = now.what.empty() ? "" : fmt::format("finishing {} ({}); ", now.what, now.duration);
  if (signal == SIGUSR1)
    return fmt::format("SIGUSR1: {}{}", finishing,
                       saves_ ? "a checkpoint is saved after the running step, and the run continues"
                              : "there is no checkpoint to save, and the work continues");
  return fmt::format("{}: {}{}. A second signal ends it at once", name_of(signal),
                     now.ends_at_stop ? fmt::format("giving up {}; ", now.what) : finishing,
                     now.then.empty() ? "it then stops" : now.then);
}

}  // namespace megatrain
