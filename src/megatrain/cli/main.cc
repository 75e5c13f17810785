#include <algorithm>
#include <csignal>

#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then fails with a sentence
  megatrain::open_standard_streams();
  return megatrain::run_command_line(megatrain::Words(argv + std::min(argc, 1), argv + argc),
                                     argc > 0 && argv[0][0] != '\0' ? argv[0] : "megatrain");
}
