// The model that a configuration names: where its files are, and what its config.json means.
#pragma once

#include <string>

#include "megatrain/config/config.h"
#include "megatrain/model/config.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// The model's own files: the text of config.json and what it means. model.path may be a name in the Hugging Face cache.
struct ModelSource {
  ModelConfig config;
  std::string config_text;
  std::string directory;   // of model.path; empty for random weights
  TensorTypes types = {};  // stored_types() of the directory
};
ModelSource read_model_source(const TrainConfig& config);

// In which the tensors of a model directory are stored, by the headers of its files. Empty when it has no weights, or
// not all of them can be read: loading them says what is wrong.
TensorTypes stored_types(const std::string& directory, const ModelConfig& config);

// In which config.json says that the model's tensors are stored, for plans without weights; empty when it does not say.
TensorTypes declared_types(const ModelConfig& config);

// Where an export's tokenizer files come from: the model's directory, for random weights data.tokenizer's; empty: none.
std::string companion_directory(const TrainConfig& config, const std::string& model_directory);

}  // namespace megatrain
