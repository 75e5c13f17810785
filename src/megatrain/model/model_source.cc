#include "megatrain/model/model_source.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/base/units.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/other_formats.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/model/fp8_tensors.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/model.h"
#include "megatrain/model/multimodal.h"
#include "megatrain/model/stored_tensors.h"

namespace megatrain {

namespace {

constexpr int64_t kMaxConfigBytes = 16 * kMiB;

// Throws a helpful error for paths that are easily mistaken for a model directory.
void refuse_no_model(const std::string& key, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (path.empty()) return;
  if (fs::is_regular_file(path, none) && fs::path(path).filename() == "config.json")
    fail_input(
        fmt::format("{} {} is a file, expected its directory; model.config: {} starts from random "
                    "weights",
                    key, path, path));
  if (!fs::is_directory(path, none))
    fail_input(fmt::format(
        "{} {} {}; give a Hugging Face model directory (config.json, weights, tokenizer), or Org/Name of "
        "one that 'hf download' has fetched",
        key, path, fs::exists(path, none) ? "is not a directory" : "does not exist" + unexpanded_hint(path)));
  if (fs::exists(path + "/config.json", none)) return;
  if (fs::exists(path + "/config.resolved.yaml", none))
    fail_input(fmt::format("{0} {1} is a run, whose trained model is {1}/model{2}; give that", key, path,
                           is_model_directory(path + "/model") ? "" : " once the run is complete"));
  if (fs::exists(path + "/checkpoint.json", none))
    fail_input(fmt::format("{} {} is a checkpoint; write its model with: megatrain export {} --out DIR, and give DIR",
                           key, path, shell_word(path)));
}

// Random weights are of the text model alone, since nothing would train the other parts.
void take_text_alone(const nlohmann::json& json, const std::string& path, ModelSource& source) {
  log_info(fmt::format("{}: random weights are those of the text part of {} alone: they are trained and exported as {}",
                       path, source.config.part_of, source.config.architecture));
  source.config_text = json_text(text_part_of(json, path).config, 2) + "\n";
  source.config.part_of.clear();
}

}  // namespace

ModelSource read_model_source(const TrainConfig& config) {
  ModelSource source;
  source.directory = find_model(config.model.path, ModelParts::weights);
  if (source.directory != config.model.path)
    log_info(fmt::format("{} {} is {}", config.names("model.path"), config.model.path, source.directory));
  refuse_no_model(config.names("model.path"), source.directory);
  const std::string path = source.directory.empty() ? config.model.config : source.directory + "/config.json";
  source.config_text = read_text_file(path, kMaxConfigBytes);
  if (source.config_text.starts_with("\xEF\xBB\xBF")) source.config_text.erase(0, 3);  // transformers refuses a BOM
  const nlohmann::json json = parse_json(source.config_text, path, "expected a Hugging Face config.json");
  refuse_quantised(json, path);
  source.config = parse_model_config(json, path);
  for (const std::string& note : passed_over_fields(json, path)) log_warn(note);
  if (source.directory.empty() && !source.config.part_of.empty()) take_text_alone(json, path, source);
  source.types = stored_types(source.directory, source.config);
  // A random base beside adapters is as if it had been released.
  if (source.directory.empty() && config.adapter.rank > 0) source.types = declared_types(source.config);
  return source;
}

TensorTypes stored_types(const std::string& directory, const ModelConfig& config) {
  if (directory.empty()) return {};
  TensorTypes types;
  try {
    const ModelFiles files = open_model_files(directory);
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
    for (const TensorSpec& tensor : layout.tensors) {
      types[tensor.name] = *config.dtype;
      if (config.mxfp4_experts && tensor.stored.mxfp4) types[tensor.name] = {*config.dtype, WeightPacking::mxfp4};
      if (is_declared_fp8(config, tensor)) types[tensor.name] = {DType::bf16, WeightPacking::fp8};
    }
  }
  return types;
}

std::string companion_directory(const TrainConfig& config, const std::string& model_directory) {
  const std::string& tokenizer = config.data.tokenizer;
  if (!model_directory.empty() || tokenizer.empty()) return model_directory;
  // A path that does not exist is returned as it is: the files next to it are unrelated.
  std::error_code none;
  return std::filesystem::is_regular_file(tokenizer, none) ? parent_directory(tokenizer) : tokenizer;
}

}  // namespace megatrain
