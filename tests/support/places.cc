// The only test source that is compiled with paths of this machine, so that a compiler cache can share all others
// between clones.
#include "tests/support/places.h"

namespace megatrain {

std::string in_repository(const std::string& path) { return std::string(MEGATRAIN_SOURCE_DIR "/") + path; }

const char* program() { return MEGATRAIN_PROGRAM; }

}  // namespace megatrain
