#pragma once

#include "megatrain/cli/verbs.h"

namespace megatrain {

// `megatrain inspect data CONFIG.yaml [-n N]`: the words behind "data".
int inspect_data(const Words& words);

}  // namespace megatrain
