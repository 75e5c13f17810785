// The hash of a model's state, which anyone can recompute from the bytes: xxh3_128 over tensors in name order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "megatrain/io/json.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {

struct StateHash {
  std::string state;                           // over all tensors; empty if there are no moments
  std::string weights;                         // over all tensors except moments
  std::map<std::string, std::string> tensors;  // over each tensor's bytes
  std::optional<int64_t> step;
};

// step, state, weights, tensors; null for absent ones.
nlohmann::json to_json(const StateHash& hash);

// NAME.exp_avg or NAME.exp_avg_sq
bool is_moment(const std::string& name);

// Suffix for the scales of int8 moments: NAME.exp_avg.scale
inline constexpr const char* kScaleSuffix = ".scale";

class StateHasher {
 public:
  // Adds the next bytes of a tensor. Names must ascend in byte order (std::string's <), and a tensor's bytes in theirs.
  void update(const std::string& name, const void* data, size_t bytes);

  // The two halves of update(), for two threads: the hash over all tensors, and the hash of each one. Both must get all
  // data, in order.
  void update_together(const std::string& name, const void* data, size_t bytes);
  void update_each(const std::string& name, const void* data, size_t bytes);

  StateHash finish(std::optional<int64_t> step = {});

 private:
  void end_tensor();

  Xxh3 state_, weights_;
  bool moments_ = false;
  Xxh3 tensor_;
  std::optional<std::string> name_;  // of the tensor that tensor_ is hashing
  std::map<std::string, std::string> tensors_;
};

// Metadata key of a state file whose tensors are not fp32; its hash is over the fp32 values that they represent.
inline constexpr const char* kStoredMoments = "state.moments";

// Hashes the stored bytes. The step is the metadata's "step", if there is one.
StateHash hash_file(const std::string& path);

// Hashes the stored bytes of a Hugging Face directory.
StateHash hash_directory(const std::string& path);

}  // namespace megatrain
