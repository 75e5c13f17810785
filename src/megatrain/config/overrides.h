// Command-line arguments that override keys of the file.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/given_keys.h"

namespace megatrain {

// Adds the keys of words such as "--optim.lr=1e-4", or "--optim.lr", "1e-4". If a key is repeated, the last one wins.
// Keys of the file's trainer are accepted beside ours. Throws Error(bad_config) "--key: …".
void read_overrides(const std::vector<std::string>& words, GivenKeys& given);

}  // namespace megatrain
