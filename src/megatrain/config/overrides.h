// Words of the command line that give keys over a file's.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/given_keys.h"

namespace megatrain {

// Adds what words such as "--optim.lr=1e-4", or "--optim.lr", "1e-4", give; the last of equal ones wins. Keys of the
// file's trainer are understood beside ours. Throws Error(bad_config) "--key: …".
void read_overrides(const std::vector<std::string>& words, GivenKeys& given);

}  // namespace megatrain
