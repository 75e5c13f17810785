// Which fields of a config.json megatrain reads, which say nothing about the maths of training, and which must hold the
// one value whose maths it has. Every other field is refused: what is accepted is obeyed.
#pragma once

#include <string>
#include <vector>

#include "megatrain/model/config_reader.h"

namespace megatrain {

// Throws Error(bad_input) for an unknown field and for a value that is not supported; an unknown field that is null
// turns nothing on and passes.
void check_known_fields(const ConfigReader& config, const std::vector<std::string>& family_fields);

// The same of a small object with these fields alone.
void check_fields_of(const ConfigReader& object, const std::vector<std::string>& known);

// A sentence for each field of an accepted config.json that is passed over although it may be meant to do something.
std::vector<std::string> passed_over_fields(const nlohmann::json& config, const std::string& where);

}  // namespace megatrain
