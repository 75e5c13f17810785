#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"

int main(int argc, char** argv) {
  megatrain::open_standard_streams();
  return megatrain::run_command_line(megatrain::Words(argv + 1, argv + argc));
}
