// Sorts the fields of a config.json: those that megatrain reads, those that do not affect the maths of training, and
// those that must have the one supported value. Every other field is refused, so that no accepted field is silently
// ignored.
#pragma once

#include <string>
#include <vector>

#include "megatrain/model/parts/config_reader.h"

namespace megatrain {

// Throws Error(bad_input) for an unknown field, and for an unsupported value. An unknown field that is null enables
// nothing and is accepted.
void check_known_fields(const ConfigReader& config, const std::vector<std::string>& family_fields);

// Whether the field, of some family, is read or must have one value.
bool decides_model(const std::string& key);

// One sentence for each field of an accepted config.json that is ignored, although its author may expect an effect.
std::vector<std::string> passed_over_fields(const nlohmann::json& config, const std::string& where);

}  // namespace megatrain
