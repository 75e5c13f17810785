// The keys of the configuration as `--help` tells them, by group.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// "model", "data", …, in the order of the help. Keys without a section are the group "run".
const std::vector<std::string>& config_groups();

// Every key with its meaning and default, group by group.
std::string config_help();

// The keys of a group, or one key, with what they accept too; empty: there is no such group or key.
std::string config_help(const std::string& topic);

}  // namespace megatrain
