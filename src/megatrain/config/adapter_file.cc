#include "megatrain/config/adapter_file.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/io/json_file.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Reads adapter_config.json, and names what would be ignored.
class ConfigFields {
 public:
  explicit ConfigFields(const std::string& path) : path_(path), fields_(read(path)) {
    if (!fields_.is_object()) fail_input(fmt::format("{} is not a JSON object; download it again.", path_));
  }

  bool given(const char* name) const {
    return fields_.contains(name) && !fields_.at(name).is_null() && fields_.at(name) != json(false) &&
           fields_.at(name) != json::object() && fields_.at(name) != json::array();
  }
  const json& at(const char* name) const { return fields_.at(name); }
  double number(const char* name, double otherwise) const {
    if (!given(name)) return fields_.contains(name) && fields_.at(name).is_number() ? 0 : otherwise;
    if (!at(name).is_number()) refuse(name, "a number");
    return at(name).get<double>();
  }
  std::string text(const char* name) const {
    if (!given(name)) return "";
    if (!at(name).is_string()) refuse(name, "a text");
    return at(name).get<std::string>();
  }
  std::vector<std::string> modules(const char* name) const {
    if (!given(name)) return {};
    if (at(name).is_string()) return {at(name).get<std::string>()};
    if (!at(name).is_array()) refuse(name, "a list of module names, or a regular expression");
    std::vector<std::string> list;
    for (const json& module : at(name)) {
      if (!module.is_string()) refuse(name, "a list of module names, or a regular expression");
      list.push_back(module.get<std::string>());
    }
    std::sort(list.begin(), list.end());  // PEFT writes a set, in any order
    return list;
  }
  std::vector<std::pair<std::string, double>> numbers(const char* name) const {
    std::vector<std::pair<std::string, double>> list;
    if (!given(name)) return list;
    if (!at(name).is_object()) refuse(name, "a number for each pattern");
    for (const auto& [pattern, number] : at(name).items()) {
      if (!number.is_number()) refuse(name, "a number for each pattern");
      list.emplace_back(pattern, number.get<double>());
    }
    return list;
  }
  [[noreturn]] void refuse(const char* name, const std::string& expected) const {
    fail_input(fmt::format("{}: '{}' is {}, expected {}", path_, name, fields_.value(name, json()).dump(), expected));
  }
  void refuse_if_given(const char* name, const char* what) const {
    if (given(name)) fail_input(fmt::format("{}: '{}' is {}: {}", path_, name, at(name).dump(), what));
  }

 private:
  static json read(const std::string& path) {
    std::error_code none;
    if (!std::filesystem::exists(path, none))
      fail_input(fmt::format("{} does not exist; give a directory that PEFT's save_pretrained wrote", path));
    return read_json_file(path);
  }

  std::string path_;
  json fields_;
};

}  // namespace

AdapterFile read_adapter_file(const std::string& directory) {
  const ConfigFields fields(directory + "/" + kAdapterFile);
  if (fields.text("peft_type") != "LORA") fields.refuse("peft_type", "LORA, the only kind that megatrain does");
  fields.refuse_if_given("use_dora", "DoRA is not supported");
  fields.refuse_if_given("fan_in_fan_out", "transposed weights are not supported");
  fields.refuse_if_given("layer_replication", "replicated layers are not supported");
  fields.refuse_if_given("layers_to_transform", "name the layers in target_modules instead");
  fields.refuse_if_given("target_parameters", "adapters of experts are not supported yet");
  fields.refuse_if_given("trainable_token_indices", "adapters of single tokens are not supported yet");
  fields.refuse_if_given("lora_bias", "biases of adapters are not supported");
  fields.refuse_if_given("alora_invocation_tokens", "activated LoRA is not supported");
  if (fields.given("bias") && fields.text("bias") != "none") fields.refuse("bias", "none");
  AdapterFile file{.settings = {}, .base = fields.text("base_model_name_or_path")};
  TrainConfig::Adapter& adapter = file.settings;
  adapter.rank = static_cast<int64_t>(fields.number("r", 8));
  if (adapter.rank < 1) fields.refuse("r", "at least 1");
  adapter.alpha = fields.number("lora_alpha", 8);
  adapter.dropout = fields.number("lora_dropout", 0);
  if (adapter.dropout < 0 || adapter.dropout >= 1) fields.refuse("lora_dropout", "at least 0 and below 1");
  adapter.rslora = fields.given("use_rslora");
  const std::vector<std::string> targets = fields.modules("target_modules");
  if (!targets.empty()) adapter.targets = targets;
  adapter.exclude = fields.modules("exclude_modules");
  adapter.rank_pattern = fields.numbers("rank_pattern");
  adapter.alpha_pattern = fields.numbers("alpha_pattern");
  adapter.also_train = fields.modules("modules_to_save");
  return file;
}

void settle_adapter_keys(TrainConfig& config, const GivenKeys& given) {
  if (config.model.adapter.empty()) return;
  const AdapterFile file = read_adapter_file(config.model.adapter);
  TrainConfig settled = config;
  settled.adapter = file.settings;
  for (const ConfigKey& key : config_keys()) {
    if (!key.name.starts_with("adapter.") || !given.has(key.name)) continue;
    if (key.name == "adapter.dropout") {
      settled.adapter.dropout = config.adapter.dropout;
    } else if (key.name == "adapter.init") {
      settled.adapter.init = config.adapter.init;
    } else if (key.write(config) != key.write(settled)) {
      fail_config(fmt::format("{}: {} is {}, but the adapter in {} has {}; leave it out", given.origin(key.name),
                              given.names(key.name), key.write(config), config.model.adapter, key.write(settled)));
    }
  }
  config.adapter = settled.adapter;
  if (!config.model.path.empty() || !config.model.config.empty()) return;
  if (file.base.empty())
    fail_config(fmt::format("{}: {}/{} names no base model; give model.path", given.origin("model.adapter"),
                            config.model.adapter, kAdapterFile));
  config.model.path = file.base;
}

}  // namespace megatrain
