#include "megatrain/watch/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

void put(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;  // the terminal is gone
    at += static_cast<size_t>(wrote);
  }
}

}  // namespace

Terminal::Terminal() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before_) != 0)
    fail_config(
        "watch needs a terminal; without one, --json prints the state of the run, --json --follow prints a line per "
        "event, and --http serves a page");
  termios raw = before_;
  raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO));
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  for (const int key : {VSUSP, VQUIT}) raw.c_cc[key] = _POSIX_VDISABLE;  // they would leave the screen in this mode
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  put("\x1b[?1049h\x1b[?25l\x1b[?7l");  // alternate screen, no cursor, no line wrap
}

Terminal::~Terminal() {
  put("\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l");
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

Terminal::Size Terminal::size() const {
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {};
  return {window.ws_col, window.ws_row};
}

void Terminal::show(const std::vector<std::string>& lines) {
  std::string frame = "\x1b[H";
  // Lines are erased before they are written: after a line of full width the cursor is still on its last column.
  for (size_t i = 0; i < lines.size(); ++i) frame += (i == 0 ? "\x1b[K" : "\r\n\x1b[K") + lines[i];
  if (static_cast<int>(lines.size()) < size().height) frame += "\r\n\x1b[J";
  if (frame == shown_) return;
  shown_ = frame;
  put(frame);
}

int Terminal::key(int wait_ms) const {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN};
  if (::poll(&input, 1, wait_ms) <= 0) return 0;
  char byte = 0;
  const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
  if (got == 1) return static_cast<unsigned char>(byte);
  return got == 0 || errno == EIO ? -1 : 0;
}

}  // namespace megatrain
