// What a dense decoder family is, read from Hugging Face's config.json. Every field is either used, known not to touch
// the maths, or refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/tensor/dtype.h"

namespace megatrain {

enum class RopeScaling : uint8_t { none, linear, llama3, yarn };

struct RopeConfig {
  RopeScaling scaling = RopeScaling::none;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  double original_max_position = 0;  // llama3, yarn
  double beta_fast = 32.0;           // yarn
  double beta_slow = 1.0;
  double attention_factor = 1.0;  // yarn: multiplies cos and sin
  bool truncate = true;
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", ...
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t ff = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position = 0;
  double norm_eps = 1e-6;
  double init_std = 0.02;
  int64_t pad_id = -1;  // its row of the embedding is not trained through the lookup, as in transformers; -1: none
  bool tied = false;    // the head reads the embedding's table
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  RopeConfig rope;
  std::vector<int64_t> window;  // (layers) sliding window, 0: none
  std::optional<DType> dtype;   // in which the weights are stored, when config.json says so

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
};

// `where` names the file in errors. Throws Error(bad_input).
ModelConfig parse_model_config(const nlohmann::json& json, const std::string& where);

// Angle per position of each pair of a head: (head_dim / 2), in double.
std::vector<double> rope_frequencies(const ModelConfig& config);

}  // namespace megatrain
