// Errors are exceptions that carry a sentence for a person and the exit code of the contract.
#pragma once

#include <stdexcept>
#include <string>

namespace megatrain {

// Exit codes of the command line (docs/contract.md).
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  bad_config = 2,
  bad_input = 3,  // model or data file
  cannot_fit = 4,
  io = 5,
  non_finite = 6,
  corrupt_checkpoint = 7,
  stalled = 8,
};

// The message says what is wrong, where, what was expected and what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

[[noreturn]] inline void fail(ExitCode code, const std::string& message) { throw Error(code, message); }
[[noreturn]] inline void fail_config(const std::string& message) { fail(ExitCode::bad_config, message); }
[[noreturn]] inline void fail_input(const std::string& message) { fail(ExitCode::bad_input, message); }
[[noreturn]] inline void fail_io(const std::string& message) { fail(ExitCode::io, message); }
[[noreturn]] inline void fail_internal(const std::string& message) { fail(ExitCode::internal, message); }

// An invariant of our own code; its violation is a bug in megatrain, never the user's fault.
inline void ensure(bool holds, const char* invariant) {
  if (!holds) fail_internal(std::string("internal invariant violated: ") + invariant);
}

}  // namespace megatrain
