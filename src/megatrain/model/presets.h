// Well-known model shapes as config.json, to plan and time without a model directory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

std::vector<std::string> preset_names();

// The preset's config.json; empty if there is no such preset. Case, dashes and underscores do not matter.
std::optional<nlohmann::json> preset_config(const std::string& name);

}  // namespace megatrain
