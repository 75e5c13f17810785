// Where a test finds the repository and the program.
#pragma once

#include <string>

namespace megatrain {

std::string in_repository(const std::string& path);  // of a file or folder, as seen from the repository's root

const char* program();  // the built megatrain

}  // namespace megatrain
