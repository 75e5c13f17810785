// What a dense decoder family is, read from Hugging Face's config.json. Every field is either used, known not to touch
// the maths, or refused by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/experts.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

enum class RopeScaling : uint8_t { none, linear, llama3, yarn, longrope };

struct RopeConfig {
  RopeScaling scaling = RopeScaling::none;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3
  double high_freq_factor = 4.0;
  double original_max_position = 0;  // llama3, yarn, longrope
  double beta_fast = 32.0;           // yarn
  double beta_slow = 1.0;
  double attention_factor = 1.0;  // yarn, longrope: multiplies cos and sin
  bool truncate = true;
  int64_t rotary_dim = 0;  // elements of a head that turn, the first; 0: all
  // longrope: each pair's frequency is divided by its factor, the long one in documents of more tokens than
  // original_max_position.
  std::vector<double> short_factor = {}, long_factor = {};

  int64_t turning(int64_t head_dim) const { return rotary_dim > 0 ? rotary_dim : head_dim; }
  // Documents of more tokens than this have angles of their own; 0: none have.
  int64_t long_above() const {
    return scaling == RopeScaling::longrope ? static_cast<int64_t>(original_max_position) : 0;
  }
};

// The mixture of experts in the place of a layer's MLP.
struct ExpertsConfig {
  int64_t count = 0;         // E; 0: every layer is dense
  int64_t chosen = 0;        // k of a token
  int64_t ff = 0;            // of an expert
  std::vector<bool> layers;  // (layers) whether each has experts
  RouterScore score = RouterScore::softmax_of_chosen;
  bool router_bias = false;
  bool bias = false;  // of the experts' products
  Gate gate;
  double aux_coef = 0;       // of the load balancing loss
  bool aux_in_loss = false;  // whether the loss that is trained holds it

  bool in_layer(int64_t layer) const { return count > 0 && layers[static_cast<size_t>(layer)]; }
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
  double norm_offset = 0;  // added to the norms' weights: 1 where files hold them less one
  double init_std = 0.02;
  int64_t pad_id = -1;  // its row of the embedding is not trained through the lookup, as in transformers; -1: none
  bool tied = false;    // the head reads the embedding's table
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  Activation activation = Activation::silu;
  double embedding_scale = 1;
  double attention_scale = 0;  // multiplies q k^T; 0: 1 / sqrt(head_dim)
  double branch_scale = 1;     // multiplies what attention and the MLP add to the residual stream
  double logits_scale = 1;
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  // of the layers with a sliding window; none: as the others
  std::vector<int64_t> window;            // (layers) sliding window, 0: none
  bool sinks = false;                     // a learned logit of each head that takes part in softmax and has no value
  ExpertsConfig experts;
  std::optional<DType> dtype;  // in which the weights are stored, when config.json says so
  bool mxfp4_experts = false;  // config.json says that files hold the experts' weights in MXFP4

  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }

  int64_t longest_window() const { return *std::max_element(window.begin(), window.end()); }  // 0: no layer has one

  // The model of these layers of it alone.
  ModelConfig with_layers(const std::vector<int64_t>& kept) const;
};

// `where` names the file in errors. Throws Error(bad_input).
ModelConfig parse_model_config(const nlohmann::json& json, const std::string& where);

// Angle per position of each pair that turns: (turning / 2), in double. `in_long`: in a document above long_above().
std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t head_dim, bool in_long = false);

}  // namespace megatrain
