#include "megatrain/base/log.h"

#include <atomic>
#include <cstdio>

namespace megatrain {
namespace {

std::atomic<bool> g_quiet{false};

// One call a line: stdio locks the stream, so lines of several threads never mix.
void write_line(const char* prefix, const std::string& message) {
  if (!g_quiet.load(std::memory_order_relaxed)) std::fprintf(stderr, "%s%s\n", prefix, message.c_str());
}

}  // namespace

void log_info(const std::string& message) { write_line("", message); }
void log_warn(const std::string& message) { write_line("warning: ", message); }
void set_log_quiet(bool quiet) { g_quiet.store(quiet, std::memory_order_relaxed); }

}  // namespace megatrain
