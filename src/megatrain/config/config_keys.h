// The table of configuration keys: the only place that knows a key's name, field, accepted values and meaning.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/config_kinds.h"

namespace megatrain {

// In the order of config.resolved.yaml; the keys of a section are adjacent.
const std::vector<ConfigKey>& config_keys();

const ConfigKey* find_config_key(const std::string& name);  // nullptr if there is none

// "optim" for "optim.lr"; empty for a top-level key.
std::string config_section(const std::string& name);
bool is_config_section(const std::string& name);

// The message for a section where a value is expected: "WHERE: 'optim' is a section of keys, …".
std::string section_sentence(const std::string& where, const std::string& name);

// The key of that name. Throws Error(bad_config) "WHERE: unknown key ..." with a suggestion.
const ConfigKey& known_config_key(const std::string& where, const std::string& name);

// The known key or section with the nearest spelling, or that other trainers call by this name; empty if there is none.
std::string nearest_config_key(const std::string& unknown);

}  // namespace megatrain
