// Block-scaled fp8 in a model's files, as DeepSeek and Qwen release it: what config.json says of it, and the tensors of
// a matrix, NAME in F8_E4M3 and NAME_scale_inv.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// The scales of a tensor that files store in fp8; nullptr: they store it otherwise. Throws Error(bad_input) for fp8 of
// a kind that is not read, and for scales that do not fit the tensor.
const StoredTensor* find_fp8_scales(const ModelFiles& files, const TensorSpec& tensor);

// Reads modules_to_not_convert if config.json says that the weights are in fp8. Throws Error(bad_input) for any other
// quantization_config, unless the family reads that itself.
std::optional<std::vector<std::string>> read_fp8_exceptions(const ConfigReader& config);

// Whether config.json says that files store this tensor in fp8.
bool is_declared_fp8(const ModelConfig& config, const TensorSpec& tensor);

}  // namespace megatrain
