// Which fields of a config.json megatrain reads, which do not affect the maths of training, and which must have the one
// value that is supported. Every other field is refused, so that no accepted field is silently ignored.
#pragma once

#include <string>
#include <vector>

#include "megatrain/model/config_reader.h"

namespace megatrain {

// Throws Error(bad_input) for an unknown field, and for an unsupported value. An unknown field that is null enables
// nothing and is accepted.
void check_known_fields(const ConfigReader& config, const std::vector<std::string>& family_fields);

// The same for a nested object that may have only these fields.
void check_fields_of(const ConfigReader& object, const std::vector<std::string>& known);

// One sentence for each field of an accepted config.json that is ignored although it may be meant to have an effect.
std::vector<std::string> passed_over_fields(const nlohmann::json& config, const std::string& where);

}  // namespace megatrain
