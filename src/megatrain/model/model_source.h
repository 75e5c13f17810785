// The model that a configuration names: the place of its files, and its parsed config.json.
#pragma once

#include <string>

#include "megatrain/config/config.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// The text of the model's config.json, its parsed form, and the model's directory. model.path may be a name in the
// Hugging Face cache.
struct ModelSource {
  ModelConfig config;
  std::string config_text;
  std::string directory;   // directory of model.path; empty for random weights
  TensorTypes types = {};  // stored_types() of that directory
};
ModelSource read_model_source(const TrainConfig& config);

// The types in which the tensors of a model directory are stored, from the headers of its files. Empty if it has no
// weights or some cannot be read; loading then reports the error.
TensorTypes stored_types(const std::string& directory, const ModelConfig& config);

// The types in which config.json says that the tensors are stored, to plan without weights. Empty if it does not say.
TensorTypes declared_types(const ModelConfig& config);

// The directory of the tokenizer files for an export: the model's, or data.tokenizer's for random weights; empty: none.
std::string companion_directory(const TrainConfig& config, const std::string& model_directory);

}  // namespace megatrain
