// The program on its own terminal, as a person runs it.
#pragma once

#include <poll.h>
#include <termios.h>

#include "tests/support/command.h"

namespace megatrain::cli {

class OnTerminal {
 public:
  // `name` is the terminal's type, as in TERM.
  explicit OnTerminal(const Words& words, const std::string& name = "xterm")
      : screen_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(::grantpt(screen_) | ::unlockpt(screen_), 0);
    const std::string path = ::ptsname(screen_);
    Words all = {program()};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    before_ = settings();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setsid();
      const int terminal = ::open(path.c_str(), O_RDWR);  // the first one opened becomes the session's own
      for (const int descriptor : {0, 1, 2}) ::dup2(terminal, descriptor);
      ::setenv("TERM", name.c_str(), 1);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~OnTerminal() {
    ::close(screen_);
    if (waited_) return;
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(const std::string& keys) const {
    EXPECT_EQ(::write(screen_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void signal(int number) const { ::kill(pid_, number); }

  // Reads until `text` appears, and discards everything up to it; empty: it did not appear within a minute.
  std::string until(const std::string& text) {
    size_t at;
    while ((at = shown_.find(text)) == std::string::npos) {
      if (!more()) {
        ADD_FAILURE() << "'" << text << "' did not come after: " << shown_;
        return "";
      }
    }
    const std::string before = shown_.substr(0, at + text.size());
    shown_.erase(0, before.size());
    return before;
  }

  // Reads this many bytes and discards them.
  void until_bytes(size_t bytes) {
    while (shown_.size() < bytes && more()) {
    }
    EXPECT_GE(shown_.size(), bytes) << shown_;
    shown_.clear();
  }

  // As with ctrl-Z and `fg`, with a shell in between that changes the terminal's modes.
  void stop_and_go_on() const {
    signal(SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    termios modes = settings();
    modes.c_lflag |= ICANON | ECHO;
    EXPECT_EQ(::tcsetattr(screen_, TCSANOW, &modes), 0);
    signal(SIGCONT);
  }

  bool is_raw() const { return (settings().c_lflag & (ICANON | ECHO)) == 0; }
  bool is_as_before() const {
    const termios now = settings();
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag && now.c_cc[VSUSP] == before_.c_cc[VSUSP];
  }

  // The program's exit code. A program that prints nothing for a minute is ended.
  int wait() {
    while (more()) {  // EIO once the program has ended
    }
    if (silent_) {
      ADD_FAILURE() << "the program goes on after: " << shown_;
      signal(SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  bool more() {
    pollfd input{.fd = screen_, .events = POLLIN};
    char bytes[4096];
    silent_ = ::poll(&input, 1, 60000) == 0;
    const ssize_t count = silent_ ? 0 : ::read(screen_, bytes, sizeof bytes);
    if (count > 0) shown_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  termios settings() const {
    termios found{};
    EXPECT_EQ(::tcgetattr(screen_, &found), 0);
    return found;
  }

  int screen_;
  pid_t pid_ = 0;
  termios before_{};
  bool silent_ = false;  // for a minute
  bool waited_ = false;
  std::string shown_;
};

}  // namespace megatrain::cli
