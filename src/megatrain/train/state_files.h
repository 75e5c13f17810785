// State in and out of records: from nothing, to an export, to a state file and back, and its hash. Weights come from a
// Hugging Face directory by model/load_weights.h. All walk the records in pieces, on a team (`threads` 0: all usable
// CPUs), so that nothing is ever held twice, and say how far they are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/hub/hash.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/model/config.h"
#include "megatrain/model/load_weights.h"
#include "megatrain/store/record.h"

namespace megatrain {

// The family's random initialisation.
void init_weights(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads);

// A Hugging Face directory with every tensor in the type `types` gives it. Returns the hash of what it holds, as
// hash_directory() would read it.
using ExportReady = std::function<void(const StateHash&)>;
struct ExportTexts {
  std::string source_directory;  // as in ExportRequest
  std::string config_json;
  ExportReady ready = {};  // called when all is written, before it takes its name
};
StateHash export_model(const std::string& directory, const ExportTexts& texts, const TensorTypes& types,
                       const std::vector<LayerRecord>& records, int threads);

// NAME (the master), and of trained tensors NAME.exp_avg, NAME.exp_avg_sq; durable under `path` when this returns its
// hash. In fp32, or as the state is stored: a stochastic master and bf16 moments in bf16, int8 moments as codes (U8)
// and NAME.exp_avg.scale, NAME.exp_avg_sq.scale (fp32, by block, of an embedding by row and block). The hash is that of
// the values in both.
enum class StateForm : uint8_t { fp32, stored };
StateHash save_state(const std::string& path, int64_t step, const std::vector<LayerRecord>& records, StateForm form,
                     int threads);

// What save_state writes of them as stored.
std::vector<TensorDeclaration> stored_tensors(const std::vector<LayerRecord>& records);

// What save_state wrote as stored, bit for bit. Throws Error(bad_input).
void load_state(const std::string& path, std::vector<LayerRecord>& records, int threads);

// Over the logical fp32 bytes, as `megatrain hash` of a state file gives it.
StateHash hash_state(const std::vector<LayerRecord>& records, int64_t step, int threads = 0);

}  // namespace megatrain
