// The paths of the repository and of the program.
#pragma once

#include <string>

namespace megatrain {

std::string in_repository(const std::string& path);  // `path` is relative to the repository's root

const char* program();  // the built megatrain

}  // namespace megatrain
