#include "megatrain/model/model_source.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/other_formats.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/model.h"
#include "megatrain/model/stored_tensors.h"

namespace megatrain {

namespace {

constexpr int64_t kMaxConfigBytes = 16 * kMiB;

}  // namespace

ModelSource read_model_source(const TrainConfig& config) {
  ModelSource source;
  source.directory = find_model(config.model.path, ModelParts::weights);
  if (source.directory != config.model.path)
    log_info(fmt::format("model.path {} is {}", config.model.path, source.directory));
  if (std::error_code none; !source.directory.empty() && !std::filesystem::is_directory(source.directory, none))
    fail_input(
        fmt::format("model.path {} is {}; give a Hugging Face model directory (config.json, weights, tokenizer), "
                    "or Org/Name of one that 'hf download' has fetched",
                    source.directory, std::filesystem::exists(source.directory, none) ? "no directory" : "not there"));
  const std::string path = source.directory.empty() ? config.model.config : source.directory + "/config.json";
  source.config_text = read_text_file(path, kMaxConfigBytes);
  if (source.config_text.starts_with("\xEF\xBB\xBF")) source.config_text.erase(0, 3);  // transformers reads none
  const nlohmann::json json = parse_json(source.config_text, path, "expected a Hugging Face config.json");
  refuse_quantised(json, path);
  source.config = parse_model_config(json, path);
  for (const std::string& note : passed_over_fields(json, path)) log_warn(note);
  source.types = stored_types(source.directory, source.config);
  return source;
}

TensorTypes stored_types(const std::string& directory, const ModelConfig& config) {
  if (directory.empty()) return {};
  TensorTypes types;
  try {
    const ModelFiles files(directory);
    for (const LayerLayout& layout : model_layouts(config)) {
      for (const TensorSpec& tensor : layout.tensors) types[tensor.name] = find_source(files, tensor).type();
    }
  } catch (const Error&) {
    return {};
  }
  return types;
}

TensorTypes declared_types(const ModelConfig& config) {
  TensorTypes types;
  if (!config.dtype) return types;
  for (const LayerLayout& layout : model_layouts(config)) {
    for (const TensorSpec& tensor : layout.tensors) types[tensor.name] = *config.dtype;
  }
  return types;
}

std::string companion_directory(const TrainConfig& config, const std::string& model_directory) {
  const std::string& tokenizer = config.data.tokenizer;
  if (!model_directory.empty() || tokenizer.empty()) return model_directory;
  std::error_code none;
  return std::filesystem::is_directory(tokenizer, none) ? tokenizer : parent_directory(tokenizer);
}

}  // namespace megatrain
