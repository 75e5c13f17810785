// Values of our keys as text, from YAML and from the command line.
#pragma once

#include <string>

#include <yaml-cpp/yaml.h>

#include "megatrain/config/config_kinds.h"

namespace megatrain {

// Throws Error(bad_config) "WHERE: …" for a list or a section if the key does not take one.
ConfigText config_text(const std::string& where, const ConfigKey& key, const YAML::Node& node);

// From a word of the command line. Text that only looks like the start of a list stays text: a pattern "[0-9]*", a
// prompt "[INST] …".
ConfigText config_text_of_word(const std::string& where, const ConfigKey& key, const std::string& word);

}  // namespace megatrain
