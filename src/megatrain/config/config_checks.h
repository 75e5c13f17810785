// Checks that involve several keys.
#pragma once

#include "megatrain/config/given_keys.h"

namespace megatrain {

// Throws Error(bad_config) "FILE:LINE: …" when something that `needs` requires is missing, or keys exclude each other.
void check_presence(const TrainConfig& config, const GivenKeys& given, const ConfigNeeds& needs);

// Throws Error(bad_config) "FILE:LINE: …" for sizes that do not fit together or are too large to plan for.
void check_sizes(const TrainConfig& config, const GivenKeys& given);

}  // namespace megatrain
