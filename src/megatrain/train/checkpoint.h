// RUN/checkpoints/step-N: the whole state at one version and what is needed to go on exactly.
//
//   state.safetensors   NAME, and of trained tensors NAME.exp_avg, NAME.exp_avg_sq, in fp32
//   checkpoint.json     step, run identity, tensor types, the state's hash
//
// Written beside its place and renamed, so that a checkpoint with its name is whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "megatrain/store/record.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

struct Checkpoint {
  std::string path;
  int64_t step = 0;
  nlohmann::json identity;  // what may not change over a run
  TensorTypes types;
  std::string state_hash;
};

// Keeps the newest `keep` checkpoints of the run.
void save_checkpoint(const std::string& run_dir, int64_t step, const nlohmann::json& identity, const TensorTypes& types,
                     const std::vector<LayerRecord>& records, int64_t keep, int threads);

// Paths of the run's checkpoints by step, oldest first.
std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& run_dir);

// Throws Error(corrupt_checkpoint).
Checkpoint read_checkpoint(const std::string& path);

// The newest; none: the run has no checkpoint. Throws Error(corrupt_checkpoint).
std::optional<Checkpoint> newest_checkpoint(const std::string& run_dir);

// Fills the records and checks them against the checkpoint's hash. Throws Error(corrupt_checkpoint).
void restore_checkpoint(const Checkpoint& checkpoint, std::vector<LayerRecord>& records, int threads);

}  // namespace megatrain
