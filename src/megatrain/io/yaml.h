// YAML with errors a person can act on, and with limits that no text can evade. An alias counts as the value it stands
// for, so walking the result is always bounded.
#pragma once

#include <string>

#include <yaml-cpp/yaml.h>

namespace megatrain {

// Parses one document of at most 4 MiB, 32 levels and 100,000 nodes, with aliases expanded. An alias inside the value
// it names is refused, and so are NULs and tags. `name` is the file's name in errors: Error(bad_config), "FILE:LINE:
// …".
YAML::Node parse_yaml(const std::string& text, const std::string& name);

// True for a list or a mapping written in YAML's flow form, as on the command line: "[a, b]".
bool is_flow_text(const std::string& text);

}  // namespace megatrain
