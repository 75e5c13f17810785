// The one source of the tests that is compiled with paths of this machine: a compiler cache gives every other one to
// any clone.
#include "tests/support/places.h"

namespace megatrain {

std::string in_repository(const std::string& path) { return std::string(MEGATRAIN_SOURCE_DIR "/") + path; }

const char* program() { return MEGATRAIN_PROGRAM; }

}  // namespace megatrain
