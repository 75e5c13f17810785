// The weights of a Hugging Face directory into records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/model/config.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/store/record.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct LoadReport {
  TensorTypes types;                // in which each tensor is stored, and will be exported
  std::vector<std::string> unused;  // tensors of the files that the model does not have
};

// Looks for every tensor of a model by the headers of its files; no weight is read. Throws Error(bad_input) where one
// is missing or of another shape or type, or where the files hold experts that the model does not have.
LoadReport match_weights(const ModelFiles& files, const std::vector<const LayerLayout*>& layouts);

// The same for a directory's own config.json: to be called before anything of the model is laid out or allocated, since
// a config.json may ask for thousands of layers that the files do not have.
void check_weights(const std::string& directory, const ModelConfig& config);

// Every tensor of every record from a Hugging Face directory, once match_weights() accepts its files; every weight must
// be finite. Throws Error(bad_input).
LoadReport load_weights(const std::string& directory, std::vector<LayerRecord>& records, int threads);

}  // namespace megatrain
