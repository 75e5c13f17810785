// Reads the keys of a configuration file and determines which trainer it is for.
#pragma once

#include <string>

#include "megatrain/config/given_keys.h"

namespace megatrain {

// Adds the keys of the YAML `text` to `given`; `given.file` is its name. Unknown keys are collected there and refused
// later. Throws Error(bad_config) "FILE:LINE: …" for a text that is not a configuration, and for a repeated key.
void read_config_file(const std::string& text, GivenKeys& given);

}  // namespace megatrain
