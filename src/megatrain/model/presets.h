// Shapes people know by name, as config.json: for planning and timing without a model directory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

std::vector<std::string> preset_names();

// The preset's config.json; none when there is no such preset.
std::optional<nlohmann::json> preset_config(const std::string& name);

}  // namespace megatrain
