// The hash of a model's state, as anyone can recompute it from the bytes: xxh3_128 over tensors in name order.
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
  std::string state;                           // over all tensors; empty when there are no moments
  std::string weights;                         // over the tensors that are not moments
  std::map<std::string, std::string> tensors;  // each tensor's bytes
  std::optional<int64_t> step;
};

// step, state, weights, tensors; null for what is absent.
nlohmann::json to_json(const StateHash& hash);

// NAME.exp_avg or NAME.exp_avg_sq
bool is_moment(const std::string& name);

// Of the scales of int8 moments: NAME.exp_avg.scale
inline constexpr const char* kScaleSuffix = ".scale";

class StateHasher {
 public:
  // The next bytes of a tensor. Names come in ascending byte order (std::string's <), a tensor's bytes in theirs.
  void update(const std::string& name, const void* data, size_t bytes);

  // Its two halves, for two threads: the hash of all tensors together, and of each alone. Both get everything, in
  // order.
  void update_together(const std::string& name, const void* data, size_t bytes);
  void update_each(const std::string& name, const void* data, size_t bytes);

  StateHash finish(std::optional<int64_t> step = {});

 private:
  void end_tensor();

  Xxh3 state_, weights_;
  bool moments_ = false;
  Xxh3 tensor_;
  std::optional<std::string> name_;  // of the tensor that tensor_ is about
  std::map<std::string, std::string> tensors_;
};

// Metadata of a state file whose tensors are not fp32; its hash is over the fp32 values that they stand for.
inline constexpr const char* kStoredMoments = "state.moments";

// Over stored bytes; the step is the metadata's "step", when there is one.
StateHash hash_file(const std::string& path);

// A Hugging Face directory, over stored bytes.
StateHash hash_directory(const std::string& path);

}  // namespace megatrain
