// RUN/checkpoints/step-N: the complete state after step N and everything an exact resume needs.
//
//   state.safetensors   NAME, and for trained tensors NAME.exp_avg and NAME.exp_avg_sq, as the run stores them: fp32
//                       unless state.moments or state.master says otherwise (train/state_files.h)
//   checkpoint.json     version, step, run identity, tensor types, hash of the state, files with their sizes, and a
//                       checksum over all of it (io/sealed_json.h), which every later version has too
//
// Version 1 has no version, files or checksum and is still read. A checkpoint is written as step-N.partial, synced and
// renamed (run/checkpoints.h).
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

inline constexpr int64_t kExactCheckpointVersion = 2;      // for a state that is all fp32
inline constexpr int64_t kCheckpointVersion = 3;           // the newest, for a state that is not all fp32
inline constexpr const char* kPartialSuffix = ".partial";  // of a checkpoint that is still being written

// The N of a checkpoint folder's name step-N; nothing for any other name.
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

// Whether it has a checkpoint.json, or the name and place of a checkpoint.
bool is_checkpoint_directory(const std::string& path);

// Checks all of checkpoint.json, and of state.safetensors the header and the size but not the contents. Throws
// Error(corrupt_checkpoint) when it is damaged, Error(io) when it cannot be read, and Error(bad_input) when a later
// version wrote it.
Checkpoint read_checkpoint(const std::string& path);

// The message with which read_checkpoint reports damage; empty if it reports none. Throws its other errors.
std::string damage_of_checkpoint(const std::string& path);

// Writes both files durably into `directory`, which exists and is empty.
void write_checkpoint(const std::string& directory, int64_t step, const nlohmann::json& identity,
                      const TensorTypes& types, const std::vector<LayerRecord>& records, int threads);

// Reads all of state.safetensors and checks it against the recorded hash, which it returns. Throws
// Error(corrupt_checkpoint).
StateHash verify_checkpoint(const Checkpoint& checkpoint);

// Fills the records and checks them against the checkpoint's hash. Throws Error(bad_config) when the checkpoint belongs
// to another model, Error(corrupt_checkpoint) when it is damaged.
void restore_checkpoint(const Checkpoint& checkpoint, std::vector<LayerRecord>& records, int threads);

}  // namespace megatrain
