// Reads and writes the state of records: initialisation, export, state files and hashes. model/files/load_weights.h
// loads weights from a Hugging Face directory. All functions process the records in pieces on a team of threads
// (`threads` 0: all usable CPUs), so nothing is ever held twice, and report their progress.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/hub/export.h"
#include "megatrain/hub/hash.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/files/kept_tensors.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/store/record.h"

namespace megatrain {

// Whether the model has adapters. Then a state holds only what is trained.
bool has_adapters(const std::vector<LayerRecord>& records);

// Whether a checkpoint alone does not restore the records: with adapters it lacks the base, and of matrices in fp8 it
// has the values but not the scales.
bool needs_base(const std::vector<LayerRecord>& records);

// Sets the magnitudes of DoRA to the norms of the weights' rows, as the weights compute. The bits depend on the weights
// alone.
void init_magnitudes(std::vector<LayerRecord>& records, int threads);

// Fills the adapters alone with their initial values. With DoRA the weights must be there.
void init_adapters(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads);

// Gives matrices in fp8 that stay packed the scales under which init_tensor() draws their values.
void init_fp8_scales(const ModelConfig& config, std::vector<LayerRecord>& records);

// The family's random initialisation, adapters included.
void init_weights(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads);

using ExportReady = std::function<void(const StateHash&)>;
struct ExportTexts {
  std::string source_directory;  // as in ExportRequest
  std::string config_json;
  ExportReady ready = {};             // called when everything is written, before it gets its final name
  const KeptTensors* kept = nullptr;  // of a multimodal model, written beside the tensors of the records
};
// Writes a Hugging Face directory with every tensor in the dtype that `types` gives it. Returns the hash of its
// contents, equal to hash_directory().
StateHash export_model(const std::string& directory, const ExportTexts& texts, const TensorTypes& types,
                       const std::vector<LayerRecord>& records, int threads);

// Writes these tensors of the records into a directory, each under what `name` makes of its name and in the dtype that
// `type` gives it, and `kept` beside them. Returns the hash of its contents, equal to hash_directory().
StateHash export_tensors(ExportRequest request, const std::vector<const TensorSpec*>& tensors,
                         const std::function<std::string(const std::string&)>& name,
                         const std::function<DType(const TensorSpec&)>& type, const ExportReady& ready,
                         const std::vector<LayerRecord>& records, int threads, const KeptTensors* kept = nullptr);

// Writes NAME (the master weights) and, for trained tensors, NAME.exp_avg and NAME.exp_avg_sq. When this returns the
// file's hash, the file is durable under `path`. The hash is over the values, so it is the same for both forms:
// - fp32: everything in fp32.
// - stored: as the state is stored. A stochastic master and bf16 moments are in bf16. int8 moments are codes (U8) with
//   NAME.exp_avg.scale and NAME.exp_avg_sq.scale (fp32, one per block; for an embedding, per row and block).
enum class StateForm : uint8_t { fp32, stored };
StateHash save_state(const std::string& path, int64_t step, const std::vector<LayerRecord>& records, StateForm form,
                     int threads);

// The tensors that save_state writes in the stored form.
std::vector<TensorDeclaration> stored_tensors(const std::vector<LayerRecord>& records);

// Restores what save_state wrote in the stored form, bit for bit. If needs_base(), the base must have been loaded.
// Throws Error(bad_input).
void load_state(const std::string& path, std::vector<LayerRecord>& records, int threads);

// Over the logical fp32 bytes; equal to `megatrain hash` of a state file.
StateHash hash_state(const std::vector<LayerRecord>& records, int64_t step, int threads = 0);

}  // namespace megatrain
