// Models in forms that are not trained: recognised, and answered with the command that helps.
#pragma once

#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

// Throws Error(bad_input) where `path` is a GGUF file, a folder of them, an adapter's directory or a pickled
// checkpoint. Anything else, also what is not there, is left to those that open it.
void refuse_other_formats(const std::string& path);

// Throws Error(bad_input) where `config`, the config.json at `path`, says that the weights are quantised. MXFP4 is left
// to the families that read it.
void refuse_quantised(const nlohmann::json& config, const std::string& path);

}  // namespace megatrain
