// A Hugging Face config.json as a ModelConfig.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/model/layers/model_config.h"

namespace megatrain {

// `where` names the file in errors. Throws Error(bad_input).
ModelConfig parse_model_config(const nlohmann::json& json, const std::string& where);

}  // namespace megatrain
