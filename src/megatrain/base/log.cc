#include "megatrain/base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "megatrain/base/escape.h"

namespace megatrain {
namespace {

std::atomic<bool> g_quiet{false};
std::atomic<bool> g_status_open{false};  // the cursor is at the end of a status line

// One call per line: stdio locks the stream, so lines from several threads never mix. Messages quote files, so terminal
// escape sequences are escaped here, for every caller.
void write_line(const std::string& prefix, const std::string& message) {
  if (g_quiet.load(std::memory_order_relaxed)) return;
  std::fprintf(stderr, "%s%s%s\n", g_status_open.exchange(false) ? "\n" : "", prefix.c_str(),
               escape_line(message).c_str());
}

int64_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

void log_info(const std::string& message) { write_line("", message); }
void log_warn(const std::string& message) {
  write_line((is_coloured(STDERR_FILENO) ? painted("warning:", LogColour::yellow) : "warning:") + " ", message);
}

void log_status(const std::string& message) { log_status(std::vector<LogField>{{.text = message}}); }

void log_status(const std::vector<LogField>& fields) {
  if (!log_is_terminal()) return log_info(joined(fields));
  if (g_quiet.load(std::memory_order_relaxed)) return;
  g_status_open = true;
  const std::string line = status_line(fields, terminal_columns() - 1, is_coloured(STDERR_FILENO));
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
}

void end_log_status() {
  if (g_status_open.exchange(false)) std::fputc('\n', stderr);
}

bool is_coloured(int descriptor) {
  const char *none = std::getenv("NO_COLOR"), *terminal = std::getenv("TERM");
  const bool dumb = terminal && std::string_view(terminal) == "dumb";  // ignores escapes, like an editor's shell
  return ::isatty(descriptor) == 1 && !dumb && (!none || none[0] == '\0');
}

bool log_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

void set_log_quiet(bool quiet) { g_quiet.store(quiet, std::memory_order_relaxed); }

}  // namespace megatrain
