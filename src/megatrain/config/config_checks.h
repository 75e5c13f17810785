// Checks that involve several keys.
#pragma once

#include "megatrain/config/given_keys.h"
#include "megatrain/config/problems.h"

namespace megatrain {

// Adds "FILE:LINE: …" for each thing that `needs` requires and that is missing, and for keys that exclude each other.
void check_presence(const TrainConfig& config, const GivenKeys& given, const ConfigNeeds& needs, Problems& problems);

// Adds "FILE:LINE: …" for sizes that do not fit together or are too large to plan for.
void check_sizes(const TrainConfig& config, const GivenKeys& given, Problems& problems);

}  // namespace megatrain
