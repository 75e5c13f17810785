// The configuration keys as `--help` shows them, by group.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// "model", "data", …, in the order of the help. Keys without a section form the group "run".
const std::vector<std::string>& config_groups();

// All keys with their meanings and defaults, group by group.
std::string config_help();

// The keys of a group, or one key, including accepted values; empty if there is no such group or key.
std::string config_help(const std::string& topic);

}  // namespace megatrain
