#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "megatrain/base/shortage.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"

namespace {

// Handles uncaught exceptions, such as those of a helper thread, which are mostly out-of-memory. They get the same
// message and exit code as elsewhere.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    const megatrain::Error said = megatrain::as_error(error);
    megatrain::say_error(said.what());
    ::_exit(static_cast<int>(said.code()));
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond `ulimit -f` fails with an error message
  std::set_terminate(on_terminate);
  megatrain::open_standard_streams();
  return megatrain::run_command_line(megatrain::Words(argv + std::min(argc, 1), argv + argc),
                                     argc > 0 && argv[0][0] != '\0' ? argv[0] : "megatrain");
}
