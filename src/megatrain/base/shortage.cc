#include "megatrain/base/shortage.h"

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

namespace megatrain {
namespace {

constexpr const char* kMemory =
    "out of host memory: the machine, its container or a limit (ulimit -v) allows no more; end other programs, raise "
    "the limit, or use less (memory.host, batch, threads)";
constexpr const char* kThreads =
    "cannot start more threads: the limit on processes (ulimit -u, or the container's) or memory (ulimit -v) is "
    "reached; raise it, or use fewer with --threads";
constexpr const char* kFiles = "too many open files; raise the limit on open files (ulimit -n)";

// Empty if the error is not a shortage.
std::string shortage_sentence(const std::system_error& error) {
  const std::error_category& category = error.code().category();
  if (category != std::generic_category() && category != std::system_category()) return "";
  switch (error.code().value()) {
    case ENOMEM: return kMemory;
    case EMFILE:
    case ENFILE: return kFiles;
    case EAGAIN: return dynamic_cast<const std::filesystem::filesystem_error*>(&error) ? "" : kThreads;
    default: return "";
  }
}

}  // namespace

bool is_shortage(int error) { return error == ENOMEM || error == EMFILE || error == ENFILE; }

Error as_error(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return *ours;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return {ExitCode::cannot_fit, kMemory};
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    if (const std::string what = shortage_sentence(*system); !what.empty()) return {ExitCode::cannot_fit, what};
  }
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return {ExitCode::io, std::string(error.what()) + "; check the path, its permissions and the disk"};
  return {ExitCode::internal,
          std::string("internal error: ") + error.what() + "; please report this with the command that led to it"};
}

}  // namespace megatrain
