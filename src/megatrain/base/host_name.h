#pragma once

#include <string>

namespace megatrain {

std::string host_name();  // empty if this machine has none

}  // namespace megatrain
