// YAML with errors a person can act on, and within bounds that no text can get round: aliases are counted as what they
// stand for, so that whatever walks the result ends soon.
#pragma once

#include <string>

#include <yaml-cpp/yaml.h>

namespace megatrain {

// One document of at most 4 MiB, 32 levels and 100,000 nodes, aliases expanded; an alias inside what it names is
// refused, and so are NULs and tags. `name` is the file's in errors, which are Error(bad_config), "FILE:LINE: …".
YAML::Node parse_yaml(const std::string& text, const std::string& name);

// True for a list or a mapping as text in YAML's flow form, as on the command line: "[a, b]".
bool is_flow_text(const std::string& text);

}  // namespace megatrain
