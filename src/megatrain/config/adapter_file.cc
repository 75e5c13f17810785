#include "megatrain/config/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/config/config_keys.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"

namespace megatrain {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Reads adapter_config.json, and names what would be ignored.
class ConfigFields {
 public:
  explicit ConfigFields(const std::string& path) : path_(path), fields_(read(path)) {
    if (!fields_.is_object()) fail_input(fmt::format("{} is not a JSON object; download it again.", path_));
  }

  bool given(const char* name) const {
    return fields_.contains(name) && !fields_.at(name).is_null() && fields_.at(name) != ordered_json(false) &&
           !(fields_.at(name).is_object() && fields_.at(name).empty()) &&
           !(fields_.at(name).is_array() && fields_.at(name).empty());
  }
  const ordered_json& at(const char* name) const { return fields_.at(name); }
  double number(const char* name, double otherwise) const {
    if (!fields_.contains(name)) return otherwise;
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
    for (const ordered_json& module : at(name)) {
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
  std::vector<std::pair<std::string, std::vector<int64_t>>> token_indices(const char* name) const {
    std::vector<std::pair<std::string, std::vector<int64_t>>> modules;
    if (!given(name)) return modules;
    const auto add = [&](const std::string& module, const ordered_json& ids) {
      std::vector<int64_t>& list = modules.emplace_back(module, std::vector<int64_t>()).second;
      const auto is_id = [](const ordered_json& id) { return id.is_number_integer(); };
      if (!ids.is_array() || !std::ranges::all_of(ids, is_id)) refuse(name, "a list of ids, or one for each module");
      for (const ordered_json& id : ids) list.push_back(id.get<int64_t>());
    };
    if (!at(name).is_object()) {
      add("embed_tokens", at(name));
    } else {
      for (const auto& [module, ids] : at(name).items()) add(module, ids);
    }
    return modules;
  }
  // Refuses every field that asks for something and is not among these.
  void refuse_others(const std::set<std::string>& known) const {
    for (const auto& [name, value] : fields_.items()) {
      if (!known.contains(name) && given(name.c_str()))
        refuse(name.c_str(), "nothing: megatrain does not know this setting");
    }
  }
  [[noreturn]] void refuse(const char* name, const std::string& expected) const {
    fail_input(fmt::format("{}: '{}' is {}, expected {}", path_, name,
                           (fields_.contains(name) ? fields_.at(name) : ordered_json()).dump(), expected));
  }
  void refuse_if_given(const char* name, const char* what) const {
    if (given(name)) fail_input(fmt::format("{}: '{}' is {}: {}", path_, name, at(name).dump(), what));
  }

 private:
  // In the file's order: of several patterns that match a module the first one counts.
  static ordered_json read(const std::string& path) {
    std::error_code none;
    if (!std::filesystem::exists(path, none))
      fail_input(fmt::format("{} does not exist; give a PEFT directory, as save_pretrained writes it", path));
    read_json_file(path);  // refuses what is malformed
    return ordered_json::parse(read_text_file(path, kMaxJsonFileBytes));
  }

  std::string path_;
  ordered_json fields_;
};

}  // namespace

namespace {

// What a directory is instead of a PEFT directory; empty: such a directory, or nothing that is known.
std::string other_kind(const std::string& directory) {
  std::error_code none;
  const auto has = [&](const char* name) { return std::filesystem::exists(directory + "/" + name, none); };
  if (has(kAdapterFile)) return "";
  if (has("config.json")) return fmt::format("a whole model: it has config.json and no {}", kAdapterFile);
  if (has("config.resolved.yaml")) return fmt::format("a run, whose adapters are in {}/model", directory);
  return "";
}

}  // namespace

AdapterFile read_adapter_file(const std::string& directory) {
  if (const std::string kind = other_kind(directory); !kind.empty())
    fail_input(fmt::format("{} is {}; expected a PEFT directory, with {} and the adapter's weights", directory, kind,
                           kAdapterFile));
  const ConfigFields fields(directory + "/" + kAdapterFile);
  if (fields.text("peft_type") != "LORA") fields.refuse("peft_type", "LORA, the only kind that megatrain does");
  fields.refuse_if_given("fan_in_fan_out", "transposed weights are not supported");
  fields.refuse_if_given("layer_replication", "replicated layers are not supported");
  fields.refuse_if_given("layers_to_transform", "name the layers in target_modules instead");
  fields.refuse_if_given("lora_bias", "biases of adapters are not supported");
  fields.refuse_if_given("alora_invocation_tokens", "activated LoRA is not supported");
  if (fields.given("task_type") && fields.text("task_type") != "CAUSAL_LM") fields.refuse("task_type", "CAUSAL_LM");
  const bool plain = !fields.given("init_lora_weights") || fields.at("init_lora_weights") == ordered_json(true) ||
                     fields.at("init_lora_weights") == ordered_json("gaussian") ||
                     fields.at("init_lora_weights") == ordered_json("orthogonal");
  if (!plain) fields.refuse("init_lora_weights", "true, gaussian or orthogonal: others change the base's weights");
  fields.refuse_others({"alpha_pattern",
                        "base_model_name_or_path",
                        "bias",
                        "exclude_modules",
                        "inference_mode",
                        "init_lora_weights",
                        "lora_alpha",
                        "lora_dropout",
                        "megatron_core",
                        "modules_to_save",
                        "peft_type",
                        "peft_version",
                        "qalora_group_size",
                        "r",
                        "rank_pattern",
                        "revision",
                        "target_modules",
                        "target_parameters",
                        "task_type",
                        "trainable_token_indices",
                        "use_dora",
                        "use_rslora",
                        "auto_mapping"});
  AdapterFile file;
  file.base = fields.text("base_model_name_or_path");
  TrainConfig::Adapter& adapter = file.settings;
  const double rank = fields.number("r", 8);
  if (!(rank >= 1 && rank <= kMostRank) || rank != std::floor(rank))
    fields.refuse("r", fmt::format("a whole number from 1 to {}", kMostRank));
  adapter.rank = static_cast<int64_t>(rank);
  adapter.alpha = fields.number("lora_alpha", 8);
  if (!(adapter.alpha >= kLeastAlpha && adapter.alpha <= kMostAlpha))
    fields.refuse("lora_alpha", fmt::format("{:g} to {:g}", kLeastAlpha, kMostAlpha));
  adapter.dropout = fields.number("lora_dropout", 0);
  if (!(adapter.dropout >= 0 && adapter.dropout <= kMostDropout))
    fields.refuse("lora_dropout", fmt::format("0 to {}", kMostDropout));
  adapter.rslora = fields.given("use_rslora");
  adapter.dora = fields.given("use_dora");
  if (fields.given("bias")) adapter.bias = fields.text("bias");
  if (adapter.bias != "none" && adapter.bias != "all" && adapter.bias != "lora_only")
    fields.refuse("bias", "none, all or lora_only");
  adapter.targets = fields.modules("target_modules");
  adapter.target_parameters = fields.modules("target_parameters");
  if (adapter.targets.empty() && adapter.target_parameters.empty())  // PEFT has a default for some families, or raises
    fields.refuse("target_modules", "names of modules, unless target_parameters names parameters");
  adapter.exclude = fields.modules("exclude_modules");
  adapter.rank_pattern = fields.numbers("rank_pattern");
  adapter.alpha_pattern = fields.numbers("alpha_pattern");
  for (const auto& [pattern, alpha] : adapter.alpha_pattern) {
    if (!(std::fabs(alpha) <= kMostAlpha))
      fields.refuse("alpha_pattern", fmt::format("numbers of {:g} at most", kMostAlpha));
  }
  adapter.also_train = fields.modules("modules_to_save");
  adapter.trainable_token_indices = fields.token_indices("trainable_token_indices");
  refuse_pickled_adapter(directory);
  return file;
}

namespace {

// A resumed run has its adapters in its checkpoint, so the directory that they began from may be gone. The settings are
// those that the run wrote down.
AdapterFile settings_of_run(const TrainConfig& config) {
  const TrainConfig before = load_config(config.run_dir + "/config.resolved.yaml", {"--model.adapter=null"},
                                         {.model = false, .data = false, .steps = false, .idle = true});
  return {.settings = before.adapter, .base = before.model.path};
}

bool has_run(const TrainConfig& config) {
  std::error_code none;
  return config.resume && std::filesystem::exists(config.run_dir + "/config.resolved.yaml", none);
}

// Sets model.adapter to the directory.
AdapterFile find_adapter_file(TrainConfig& config, const GivenKeys& given) {
  try {
    config.model.adapter = find_model(config.model.adapter, ModelParts::adapter);
  } catch (const Error&) {
    if (!has_run(config)) throw;
  }
  if (has_run(config) && !is_adapter_directory(config.model.adapter)) return settings_of_run(config);
  if (const std::string kind = other_kind(config.model.adapter); !kind.empty())
    fail_input(
        fmt::format("{}: {} is {}, {}; expected a PEFT directory, with {} and the adapter's weights. {} takes a whole "
                    "model",
                    given.origin("model.adapter"), given.names("model.adapter"), config.model.adapter, kind,
                    kAdapterFile, given.names("model.path")));
  return read_adapter_file(config.model.adapter);
}

}  // namespace

void settle_adapter_keys(TrainConfig& config, const GivenKeys& given) {
  if (config.model.adapter.empty()) return;
  const AdapterFile file = find_adapter_file(config, given);
  TrainConfig settled = config;
  settled.adapter = file.settings;
  for (const ConfigKey& key : config_keys()) {
    if (!key.name.starts_with("adapter.") || !given.has(key.name)) continue;
    if (key.name == "adapter.dropout") {
      settled.adapter.dropout = config.adapter.dropout;
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

void warn_of_other_base(const std::string& directory, const AdapterFile& file, const std::string& base) {
  if (file.base.empty()) return;
  try {
    std::error_code none;
    if (std::filesystem::equivalent(find_model(file.base, ModelParts::config), base, none)) return;
  } catch (const Error&) {
    // it is not on this machine
  }
  log_warn(fmt::format("{}/{} names the base {}, and this one is {}", directory, kAdapterFile, file.base, base));
}

}  // namespace megatrain
