#include "megatrain/train/target.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/model/presets.h"

namespace megatrain {

namespace {

[[noreturn]] void refuse_model(const std::string& name) {
  const std::vector<std::string> meant = presets_meant(name);
  if (!meant.empty()) fail_config(fmt::format("'{}' may be {}; give one of these names", name, fmt::join(meant, ", ")));
  const std::string near = nearest_preset(name);
  fail_config(fmt::format("'{}' is neither a configuration, a Hugging Face directory nor a preset{}; presets are {}",
                          name, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                          fmt::join(preset_names(), ", ")));
}

}  // namespace

bool names_configuration(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

Target read_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers) {
  namespace fs = std::filesystem;
  const ConfigNeeds nothing{.model = false, .data = false, .steps = false};
  TrainConfig config;
  nlohmann::json json;
  std::string where = name, directory;
  bool random = false;
  if (names_configuration(name)) {
    config = load_config(name, overrides, {.model = true, .data = false, .steps = false});
    const std::string& path = config.model.path;
    random = path.empty();
    if (!random) directory = find_model(path, ModelParts::config);
    where = random ? config.model.config : directory + "/config.json";
    json = read_json_file(where);
  } else {
    config = parse_config("", name, overrides, nothing);
    const std::string preset = preset_of(name);
    // a model's directory, or the cache's, goes before a preset that is written in another way
    if (!preset.empty() && (preset == name || !(fs::exists(name) || in_hub_cache(name)))) {
      json = *preset_config(preset);
      where = preset;
      if (is_hub_name(name)) log_info(fmt::format("{} has the shape of the preset {}", name, preset));
    } else if (const std::string found = find_model(name, ModelParts::config); fs::is_directory(found)) {
      directory = found;
      where = directory + "/config.json";
      json = read_json_file(where);
    } else if (fs::exists(name)) {
      json = read_json_file(name);
    } else {
      refuse_model(name);
    }
  }
  if (layers && (*layers < 1 || *layers > kMaxLayers))
    fail_config(fmt::format("--layers is {}; expected a number of layers from 1 to {}", *layers, kMaxLayers));
  if (layers && json.is_object()) {
    nlohmann::json& text = text_fields(json);
    text["num_hidden_layers"] = *layers;
    text.erase("layer_types");
  }
  Target target{.config = config, .model = parse_model_config(json, where), .directory = directory, .stored = {}};
  target.stored = stored_types(directory, target.model);
  if (target.stored.empty() && (!random || config.adapter.rank > 0)) target.stored = declared_types(target.model);
  return target;
}

Session open_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers) {
  Target target = read_target(name, overrides, layers);
  return Session(target.config, {.config = std::move(target.model), .types = std::move(target.stored)});
}

}  // namespace megatrain
