// RUN/checkpoints/step-N: the whole state at one version and what is needed to go on exactly.
//
//   state.safetensors   NAME, and of trained tensors NAME.exp_avg, NAME.exp_avg_sq, as the run stores them: fp32 unless
//                       state.moments or state.master says otherwise (train/state_files.h)
//   checkpoint.json     version, step, run identity, tensor types, the state's hash, files with their sizes, and a
//                       checksum of all of it (io/sealed_json.h), which every later version has too
//
// Version 1 had neither version, files nor checksum; it is still read. A checkpoint is written under the name
// step-N.partial, synced and renamed (run/checkpoints.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/store/record.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

inline constexpr int64_t kExactCheckpointVersion = 2;      // of a state that is all fp32
inline constexpr int64_t kCheckpointVersion = 3;           // the newest: of one that is not
inline constexpr const char* kPartialSuffix = ".partial";  // of a checkpoint that does not have its name yet

// The step that a checkpoint's folder, step-N, is named after; none: it is not.
std::optional<int64_t> step_of_name(std::string_view name);

struct Checkpoint {
  std::string path;
  int64_t version = 0;
  int64_t step = 0;
  nlohmann::json identity;  // what may not change over a run
  TensorTypes types;
  std::string state_hash;

  std::string state_file() const { return path + "/state.safetensors"; }
};

// It has a checkpoint.json, or the name and the place of a checkpoint.
bool is_checkpoint_directory(const std::string& path);

// Checks checkpoint.json whole and the header and the size of state.safetensors, not what this holds. Throws
// Error(corrupt_checkpoint) when it is damaged, Error(io) when it cannot be read, Error(bad_input) when it is of a
// later version.
Checkpoint read_checkpoint(const std::string& path);

// The sentence with which read_checkpoint says that it is damaged; empty: it does not. Throws its other errors.
std::string damage_of_checkpoint(const std::string& path);

// Writes both files into `directory`, which is there and empty, durably.
void write_checkpoint(const std::string& directory, int64_t step, const nlohmann::json& identity,
                      const TensorTypes& types, const std::vector<LayerRecord>& records, int threads);

// Reads state.safetensors through and compares its hash, which is returned. Throws Error(corrupt_checkpoint).
StateHash verify_checkpoint(const Checkpoint& checkpoint);

// Fills the records and checks them against the checkpoint's hash. Throws Error(bad_config) when the checkpoint is of
// another model, Error(corrupt_checkpoint) when it is damaged.
void restore_checkpoint(const Checkpoint& checkpoint, std::vector<LayerRecord>& records, int threads);

}  // namespace megatrain
