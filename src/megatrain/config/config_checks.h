// What only several keys together can say wrongly.
#pragma once

#include "megatrain/config/given_keys.h"

namespace megatrain {

// What is missing for `needs`, and what cannot be given together. Throws Error(bad_config) "FILE:LINE: …".
void check_presence(const TrainConfig& config, const GivenKeys& given, const ConfigNeeds& needs);

// Sizes that do not go together, or are past what a plan can be made for. Throws Error(bad_config) "FILE:LINE: …".
void check_sizes(const TrainConfig& config, const GivenKeys& given);

}  // namespace megatrain
