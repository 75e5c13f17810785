#include "megatrain/cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/escape.h"
#include "megatrain/base/log.h"
#include "megatrain/base/utf8.h"

namespace megatrain {

void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() takes the lowest free number, which is this one
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) != descriptor) ::_exit(1);
  }
}

std::string write_result(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return "";
  return std::strerror(errno != 0 ? errno : EIO);
}

void print_result(const std::string& text, const char* what) {
  if (const std::string why = write_result(text); !why.empty())
    fail_io(fmt::format("the {} could not be written to standard output: {}", what, why));
}

// Bypasses stdio, whose buffer would keep what could not be written and try again at exit.
void print_text(const std::string& text) {
  std::signal(SIGPIPE, SIG_IGN);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE) return;
    if (count < 0) fail_io(fmt::format("the result could not be written to standard output: {}", std::strerror(errno)));
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

void say_error(const std::string& message) {
  // A single line, so that quoted text cannot pass for a second message, and short enough to read.
  constexpr size_t kMostBytes = 2000;
  std::string line = escape_line(message);
  if (line.size() > kMostBytes) {
    size_t end = kMostBytes;
    while (end > 0 && !is_utf8_boundary(line[end])) --end;  // do not cut within a character
    line = line.substr(0, end) + "\u2026";
  }
  const std::string name = is_coloured(STDERR_FILENO) ? painted("megatrain:", LogColour::red) : "megatrain:";
  std::fprintf(stderr, "%s %s\n", name.c_str(), line.c_str());
}

}  // namespace megatrain
