// Loads the weights of a Hugging Face directory into records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/store/record.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct LoadReport {
  TensorTypes types;                // how each tensor is stored, and will be exported
  std::vector<std::string> unused;  // tensors in the files that the model does not have
};

// Finds every tensor of a model in the headers of its files; reads no weights. Throws Error(bad_input) if one is
// missing or has another shape or type, or if the files have experts that the model does not have.
LoadReport match_weights(const ModelFiles& files, const std::vector<const LayerLayout*>& layouts);

// Does the same for the files in `directory` and the model that `config` describes. Call it before the model is laid
// out or allocated, since a config.json may ask for thousands of layers that the files do not have.
void check_weights(const std::string& directory, const ModelConfig& config);

// Loads every tensor of every record, after match_weights() has accepted the files. Every weight must be finite.
// Records whose weights stay in the files are left as they are. Throws Error(bad_input).
LoadReport load_weights(const std::string& directory, std::vector<LayerRecord>& records, int threads);

// Throws Error(bad_input) for a weight that is infinite or NaN, which makes every result useless, or would be infinite
// in bf16. `where`: the file or directory.
[[noreturn]] void fail_not_finite(const std::string& where, const std::string& tensor, int64_t element, float value);

// Calls it for the first scale (if `begin` is 0) or element of these that is not finite in `dtype`. `codes` are those
// of elements [begin, begin + count) of a matrix in fp8, `scales` those of the whole matrix.
void check_fp8(const ModelFiles& files, const TensorSource& source, const TensorSpec& tensor, DType dtype,
               std::span<const float> scales, const std::byte* codes, int64_t begin, int64_t count);

}  // namespace megatrain
