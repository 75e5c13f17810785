// Options of a loaded model, shared by `generate`, `eval`, `chat` and `serve`.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/arguments.h"

namespace megatrain {

// The verb's own options plus those of a loaded model.
std::vector<std::string> with_loaded_model_options(std::vector<std::string> options);

// Those that were given, as LoadedModel takes them.
std::vector<std::string> loaded_model_settings(const Arguments& arguments);

}  // namespace megatrain
