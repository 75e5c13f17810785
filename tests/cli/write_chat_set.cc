// write_chat_set SEED FOLDER: writes the files of the end-to-end chat test, for the script that makes its golden.
#include <cstdio>
#include <cstdlib>

#include "tests/cli/chat_set.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("write_chat_set SEED FOLDER\n", stderr);
    return 2;
  }
  megatrain::write_chat_set(std::strtoull(argv[1], nullptr, 10), argv[2]);
}
