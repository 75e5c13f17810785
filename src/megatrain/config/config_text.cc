#include "megatrain/config/config_text.h"

#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/yaml.h"

namespace megatrain {
namespace {

void add_entries(const std::string& where, const ConfigKey& key, const YAML::Node& node, const std::string& name,
                 std::map<std::string, std::string>& into) {
  if (node.IsMap()) {
    for (const auto& entry : node)
      add_entries(where, key, entry.second, (name.empty() ? "" : name + ".") + entry.first.as<std::string>(), into);
  } else if (node.IsSequence() && key.lists && !name.empty() && !into.contains(name)) {
    std::string& joined = into[name];
    for (const YAML::Node& element : node) {
      if (!element.IsScalar())
        fail_config(fmt::format("{}: {} is not understood at '{}', expected {}", where, key.name, name, key.accepts));
      joined += (joined.empty() ? "" : ",") + element.Scalar();
    }
  } else if (!node.IsScalar() || !into.emplace(name, node.Scalar()).second) {
    fail_config(fmt::format("{}: {} is not understood at '{}', expected {}", where, key.name, name, key.accepts));
  }
}

std::vector<std::map<std::string, std::string>> read_items(const std::string& where, const ConfigKey& key,
                                                           const YAML::Node& node) {
  std::vector<std::map<std::string, std::string>> items;
  if (node.IsMap()) {
    add_entries(where, key, node, "", items.emplace_back());
    return items;
  }
  for (const YAML::Node& element : node) add_entries(where, key, element, "", items.emplace_back());
  if (items.empty()) fail_config(fmt::format("{}: {} is an empty list, expected {}", where, key.name, key.accepts));
  return items;
}

// If the text is not YAML, throws when `needed`, otherwise returns nothing.
std::optional<YAML::Node> flow_node(const std::string& text, const std::string& where, bool needed) {
  try {
    return parse_yaml(text, where);
  } catch (const Error&) {
    if (needed) throw;
    return std::nullopt;
  }
}

}  // namespace

ConfigText config_text(const std::string& where, const ConfigKey& key, const YAML::Node& node) {
  if (node.IsNull()) return {.text = "", .null = true};
  if (node.IsScalar()) return {.text = node.Scalar()};
  if (key.items) return {.text = "", .items = read_items(where, key, node)};
  if (!key.list || !node.IsSequence())
    fail_config(
        fmt::format("{}: {} is a {}, expected {}", where, key.name, node.IsMap() ? "section" : "list", key.accepts));
  ConfigText joined;
  for (const YAML::Node& element : node) {
    if (!element.IsScalar())
      fail_config(
          fmt::format("{}: {} holds something other than plain values, expected {}", where, key.name, key.accepts));
    joined.text += (joined.text.empty() ? "" : ",") + element.Scalar();
  }
  if (joined.text.empty()) joined.text = "none";
  return joined;
}

ConfigText config_text_of_word(const std::string& where, const ConfigKey& key, const std::string& word) {
  if (!is_flow_text(word) || !(key.items || key.list) || (word.starts_with('{') && !key.path && !key.mapping))
    return {.text = word};
  const std::optional<YAML::Node> list = flow_node(word, where, key.path);
  return list && !list->IsScalar() ? config_text(where, key, *list) : ConfigText{.text = word};
}

}  // namespace megatrain
