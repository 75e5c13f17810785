// The CONFIG.yaml of a verb's words.
#pragma once

#include "megatrain/config/arguments.h"
#include "megatrain/config/config.h"

namespace megatrain {

// load_config of it with the overrides. Throws Error(bad_config) for a file of another kind, data or a model's
// config.json, and for such a file as data.tokenizer, with the key it belongs to.
TrainConfig load_config_argument(const Arguments& arguments, const ConfigNeeds& needs = {});

}  // namespace megatrain
