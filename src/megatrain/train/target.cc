#include "megatrain/train/target.h"

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/dense_family.h"
#include "megatrain/model/presets.h"

namespace megatrain {

Target read_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers) {
  namespace fs = std::filesystem;
  const ConfigNeeds nothing{.model = false, .data = false, .steps = false};
  TrainConfig config;
  nlohmann::json json;
  std::string where = name;
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    config = load_config(name, overrides, {.model = true, .data = false, .steps = false});
    const std::string& path = config.model.path;
    where = path.empty() ? config.model.config : find_model(path, ModelParts::config) + "/config.json";
    json = read_json_file(where);
  } else {
    config = parse_config("", name, overrides, nothing);
    const std::string directory = find_model(name, ModelParts::config);
    if (const auto preset = preset_config(name)) {
      json = *preset;
    } else if (fs::is_directory(directory)) {
      where = directory + "/config.json";
      json = read_json_file(where);
    } else if (fs::exists(name)) {
      json = read_json_file(name);
    } else {
      fail_config(fmt::format("'{}' is neither a configuration, a Hugging Face directory nor a preset; presets are {}",
                              name, fmt::join(preset_names(), ", ")));
    }
  }
  if (layers && (*layers < 1 || *layers > kMaxLayers))
    fail_config(fmt::format("--layers is {}; expected a number of layers from 1 to {}", *layers, kMaxLayers));
  if (layers && json.is_object()) {
    json["num_hidden_layers"] = *layers;
    json.erase("layer_types");
  }
  return {.config = config, .model = parse_model_config(json, where)};
}

Session open_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers) {
  Target target = read_target(name, overrides, layers);
  return Session(target.config, {.config = std::move(target.model)});
}

}  // namespace megatrain
