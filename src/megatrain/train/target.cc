#include "megatrain/train/target.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/dense_family.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/model/presets.h"

namespace megatrain {

bool names_configuration(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

namespace {

// A model's config.json and where it came from.
struct Source {
  nlohmann::json json;
  std::string where, directory = {};
  bool random = false;  // its weights
};

Target make_target(const TrainConfig& config, Source source, std::optional<int64_t> layers) {
  nlohmann::json& json = source.json;
  if (layers && (*layers < 1 || *layers > kMaxLayers))
    fail_config(fmt::format("--layers is {}; expected a number of layers from 1 to {}", *layers, kMaxLayers));
  if (layers && json.is_object()) {
    nlohmann::json& text = text_fields(json);
    text["num_hidden_layers"] = *layers;
    text.erase("layer_types");
  }
  Target target{
      .config = config, .model = parse_model_config(json, source.where), .directory = source.directory, .stored = {}};
  target.stored = stored_types(source.directory, target.model);
  if (target.stored.empty() && (!source.random || config.adapter.rank > 0))
    target.stored = declared_types(target.model);
  return target;
}

}  // namespace

Target target_of(const TrainConfig& config, std::optional<int64_t> layers) {
  const bool random = config.model.path.empty();
  const std::string directory = random ? "" : find_model(config.model.path, ModelParts::config);
  const std::string where = random ? config.model.config : directory + "/config.json";
  return make_target(config, {.json = read_json_file(where), .where = where, .directory = directory, .random = random},
                     layers);
}

Target read_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers) {
  namespace fs = std::filesystem;
  if (names_configuration(name))
    return target_of(load_config(name, overrides, {.model = true, .data = false, .steps = false}), layers);
  const TrainConfig config = parse_config("", name, overrides, {.model = false, .data = false, .steps = false});
  const std::string found = find_model(name, ModelParts::config);
  const auto preset = preset_config(name);
  // a model's directory goes before a preset that is written in another way
  if (preset && (!fs::exists(found) || std::ranges::count(preset_names(), name) > 0))
    return make_target(config, {.json = *preset, .where = name}, layers);
  if (fs::is_directory(found)) {
    const std::string where = found + "/config.json";
    return make_target(config, {.json = read_json_file(where), .where = where, .directory = found}, layers);
  }
  if (fs::exists(name)) return make_target(config, {.json = read_json_file(name), .where = name}, layers);
  fail_config(fmt::format("'{}' is neither a configuration, a Hugging Face directory nor a preset; presets are {}",
                          name, fmt::join(preset_names(), ", ")));
}

Session open_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers) {
  Target target = read_target(name, overrides, layers);
  return Session(target.config, {.config = std::move(target.model), .types = std::move(target.stored)});
}

}  // namespace megatrain
