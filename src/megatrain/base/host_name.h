#pragma once

#include <string>

namespace megatrain {

std::string host_name();  // empty where this machine has none

}  // namespace megatrain
