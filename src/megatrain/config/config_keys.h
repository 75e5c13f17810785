// The table of configuration keys: the only place that knows a key's name, field, accepted values and meaning.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/config_kinds.h"

namespace megatrain {

// In the order of config.resolved.yaml; the keys of a section are neighbours.
const std::vector<ConfigKey>& config_keys();

const ConfigKey* find_config_key(const std::string& name);  // nullptr when there is none

// "optim" of "optim.lr"; empty for a key of the top level.
std::string config_section(const std::string& name);
bool is_config_section(const std::string& name);

// Says that a section stands where a value does: "WHERE: 'optim' is a section of keys, …".
std::string section_sentence(const std::string& where, const std::string& name);

// The key of that name. Throws Error(bad_config) "WHERE: unknown key ...", which names one that is near.
const ConfigKey& known_config_key(const std::string& where, const std::string& name);

// The known key or section that is spelled almost like what was written, or is called so elsewhere; empty: none is.
std::string nearest_config_key(const std::string& unknown);

}  // namespace megatrain
