// Loads the CONFIG.yaml argument of a verb.
#pragma once

#include "megatrain/config/arguments.h"
#include "megatrain/config/config.h"

namespace megatrain {

// Calls load_config with the overrides. Throws Error(bad_config), naming the key it belongs to, when the argument is
// another kind of file, such as data or a model's config.json. The same when data.tokenizer is such a file.
TrainConfig load_config_argument(const Arguments& arguments, const ConfigNeeds& needs = {});

}  // namespace megatrain
