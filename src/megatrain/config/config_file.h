// The keys of a configuration file, and whose file it is.
#pragma once

#include <string>

#include "megatrain/config/given_keys.h"

namespace megatrain {

// Adds what the YAML `text` of the file `given.file` has; unknown keys are listed in `given`, not refused yet.
// Throws Error(bad_config) "FILE:LINE: …" for what is no configuration, and for a key that is given twice.
void read_config_file(const std::string& text, GivenKeys& given);

}  // namespace megatrain
