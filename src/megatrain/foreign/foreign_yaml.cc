#include "megatrain/foreign/foreign_yaml.h"

#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/yaml.h"

namespace megatrain {
namespace {

// Flattens a node: nested names are dotted, lists become their elements joined by commas.
void flatten(const YAML::Node& node, const std::string& name, std::map<std::string, std::string>& into) {
  if (node.IsMap()) {
    for (const auto& entry : node)
      flatten(entry.second, (name.empty() ? "" : name + ".") + (entry.first.IsScalar() ? entry.first.Scalar() : "?"),
              into);
  } else if (node.IsSequence()) {
    into[name];  // keep empty lists too
    for (const YAML::Node& element : node)
      into[name] += (into[name].empty() ? "" : ",") + (element.IsScalar() ? element.Scalar() : "{…}");
  } else if (node.IsScalar()) {
    into[name] = node.Scalar();
  }
}

// Scalars become JSON values where they parse as JSON, otherwise strings.
nlohmann::json json_of(const YAML::Node& node) {
  nlohmann::json json;
  if (node.IsMap()) {
    json = nlohmann::json::object();
    for (const auto& entry : node) json[entry.first.IsScalar() ? entry.first.Scalar() : "?"] = json_of(entry.second);
  } else if (node.IsSequence()) {
    json = nlohmann::json::array();
    for (const YAML::Node& element : node) json.push_back(json_of(element));
  } else if (node.IsScalar()) {
    json = nlohmann::json::parse(node.Scalar(), nullptr, false);
    if (json.is_discarded() || json.is_structured()) json = node.Scalar();
  }
  return json;
}

}  // namespace

Foreign read_foreign(const ForeignTrainer& trainer, const std::string& file, const std::string& where,
                     const std::string& name, const YAML::Node& node) {
  Foreign value{.where = where};
  value.null = node.IsNull();
  if (node.IsScalar()) return read_foreign_text(trainer, file, where, name, node.Scalar());
  const bool list = takes_list(trainer, name), mapping = takes_mapping(trainer, name);
  if ((node.IsSequence() && !list) || (node.IsMap() && !mapping))
    fail_config(fmt::format("{}: {} is a {}, expected {}", where, name, node.IsMap() ? "section" : "list",
                            list ? "a value or a list of values" : "one value"));
  if (node.IsMap()) {
    value.text = node.size() == 0 ? "{}" : "{…}";
    value.json = json_text(json_of(node));
    for (const auto& entry : node)
      value.entries[entry.first.IsScalar() ? entry.first.Scalar() : "?"] =
          entry.second.IsScalar() ? entry.second.Scalar() : "{…}";
  }
  for (const YAML::Node& element : node.IsSequence() ? node : YAML::Node(YAML::NodeType::Sequence)) {
    if (!element.IsScalar() && !mapping)
      fail_config(fmt::format("{}: {} holds something other than plain values, expected a value or a list of values",
                              where, name));
    value.text += (value.text.empty() ? "" : ",") + (element.IsScalar() ? element.Scalar() : "{…}");
    ForeignItem& item = value.items.emplace_back();
    const bool elsewhere = where.starts_with("--") || element.Mark().is_null();
    item.where = elsewhere ? where : fmt::format("{}:{}", file, element.Mark().line + 1);
    flatten(element, "", item.entries);
  }
  if (node.IsSequence() && node.size() == 0) value.text = "none";
  return value;
}

Foreign read_foreign_text(const ForeignTrainer& trainer, const std::string& file, const std::string& where,
                          const std::string& name, const std::string& text) {
  const bool mapping = takes_mapping(trainer, name), list = takes_list(trainer, name);
  if (!(mapping && text.starts_with('{')) && !((mapping || list) && text.starts_with('[')))
    return {.text = text, .where = where};
  if (is_flow_text(text)) {
    const YAML::Node node = parse_yaml(text, where);
    if (!node.IsScalar()) return read_foreign(trainer, file, where, name, node);
  }
  fail_config(fmt::format("{}: {} is '{}', expected {}", where, name, text,
                          name == "lr_scheduler_kwargs" ? "a mapping such as {min_lr: 1e-6}"
                                                        : "a list or mapping in YAML's form, such as [a, b]"));
}

}  // namespace megatrain
