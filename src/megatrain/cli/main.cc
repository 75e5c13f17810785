#include "megatrain/cli/verbs.h"

int main(int argc, char** argv) { return megatrain::run_command_line(megatrain::Words(argv + 1, argv + argc)); }
