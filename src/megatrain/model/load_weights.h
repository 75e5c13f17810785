// The weights of a Hugging Face directory into records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/model/stored_tensors.h"
#include "megatrain/store/record.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

struct LoadReport {
  TensorTypes types;                // in which each tensor is stored, and will be exported
  std::vector<std::string> unused;  // tensors of the files that the model does not have
};

// Every tensor of every record from a Hugging Face directory; shapes must match and every weight be
// finite. Throws Error(bad_input).
LoadReport load_weights(const std::string& directory, std::vector<LayerRecord>& records, int threads);

}  // namespace megatrain
