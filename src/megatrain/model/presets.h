// Well-known model shapes as config.json, to plan and time without a model directory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

std::vector<std::string> preset_names();

// The presets that `name` may mean: its own name in any case, with or without dashes; the name of a release on the hub,
// such as Qwen/Qwen2.5-7B-Instruct; or words that some presets have, such as 7b. The first two give one preset at most.
std::vector<std::string> presets_meant(const std::string& name);

// The preset with the nearest name to a mistyped one; empty if none is near.
std::string nearest_preset(const std::string& name);

// The config.json of the one preset that the name means, by its own name or a release's; empty if there is none.
std::optional<nlohmann::json> preset_config(const std::string& name);

// Which preset preset_config() takes; empty if none.
std::string preset_of(const std::string& name);

}  // namespace megatrain
