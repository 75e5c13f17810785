// Recognises model formats that cannot be trained, and names the command that converts them.
#pragma once

#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

// Throws Error(bad_input) when `path` is a GGUF file, a folder of them, an adapter's directory or a pickled checkpoint.
// Anything else, including a path that does not exist, is left to the code that opens it.
void refuse_other_formats(const std::string& path);

// Throws Error(bad_input) when `config`, the config.json at `path`, declares quantised weights. MXFP4 and block-scaled
// fp8 are accepted here and left to the code that reads them.
void refuse_quantised(const nlohmann::json& config, const std::string& path);

}  // namespace megatrain
