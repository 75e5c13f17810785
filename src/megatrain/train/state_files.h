// State in and out of records: from a Hugging Face directory or from nothing, to an export, to a state file and back,
// and its hash. All walk the records tensor by tensor in pieces, so that nothing is ever held twice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megatrain/hub/hash.h"
#include "megatrain/model/config.h"
#include "megatrain/store/record.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

using TensorTypes = std::map<std::string, DType>;  // in which each tensor was stored, and will be exported

// As files write it: (cols) for a vector, (rows, cols) for a matrix.
std::vector<int64_t> tensor_shape(const TensorSpec& tensor);

struct LoadReport {
  TensorTypes types;
  std::vector<std::string> unused;  // tensors of the files that the model does not have
};

// Every tensor of every record from a Hugging Face directory; shapes must match. Throws Error(bad_input).
LoadReport load_weights(const std::string& directory, std::vector<LayerRecord>& records, int threads);

// The family's random initialisation.
void init_weights(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads);

// A Hugging Face directory with every tensor in the type `types` gives it.
void export_model(const std::string& directory, const std::string& source_directory, const std::string& config_text,
                  const TensorTypes& types, const std::vector<LayerRecord>& records);

// NAME (fp32 master), NAME.exp_avg, NAME.exp_avg_sq; durable under `path` when this returns.
void save_state(const std::string& path, int64_t step, const std::vector<LayerRecord>& records);

// What save_state wrote, bit for bit. Throws Error(corrupt_checkpoint).
void load_state(const std::string& path, std::vector<LayerRecord>& records, int threads);

// Over the logical fp32 bytes, as `megatrain hash` of a state file gives it.
StateHash hash_state(const std::vector<LayerRecord>& records, int64_t step);

}  // namespace megatrain
