// The model that a configuration names: where its files are, and what its config.json means.
#pragma once

#include <string>

#include "megatrain/config/config.h"
#include "megatrain/model/config.h"

namespace megatrain {

// The model's own files: the text of config.json and what it means. model.path may be a name in the Hugging Face cache.
struct ModelSource {
  ModelConfig config;
  std::string config_text;
  std::string directory;  // of model.path; empty for random weights
};
ModelSource read_model_source(const TrainConfig& config);

// Where an export's tokenizer files come from: the model's directory, for random weights data.tokenizer's; empty: none.
std::string companion_directory(const TrainConfig& config, const std::string& model_directory);

}  // namespace megatrain
