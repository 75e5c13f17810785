// The configuration of a decoder model, read from Hugging Face's config.json. Every field is used, known not to affect
// the maths, or refused by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/experts.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

// proportional: only the first pairs of a head turn, `proportion` of all. The frequencies are those of the whole head.
enum class RopeScaling : uint8_t { none, linear, llama3, yarn, longrope, proportional };

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
  int64_t rotary_dim = 0;  // leading elements of a head that are rotated; 0: all
  // longrope: each pair's frequency is divided by its factor. Documents of more tokens than original_max_position use
  // long_factor.
  std::vector<double> short_factor = {}, long_factor = {};
  bool pairs = false;  // elements 2i and 2i + 1 of a head are a pair, instead of i and i + turning / 2
  // The query at position p is multiplied by 1 + query_growth ln(1 + floor(p / original_max_position)).
  double query_growth = 0;
  double proportion = 1;  // proportional

  int64_t turning(int64_t head_dim) const { return rotary_dim > 0 ? rotary_dim : head_dim; }
  // Documents of more tokens than this use long_factor; 0: no document does.
  int64_t long_above() const {
    return scaling == RopeScaling::longrope ? static_cast<int64_t>(original_max_position) : 0;
  }
};

// The mixture of experts that replaces a layer's MLP.
struct ExpertsConfig {
  int64_t count = 0;         // E; 0: every layer is dense
  int64_t chosen = 0;        // k, experts per token
  int64_t ff = 0;            // width of an expert's MLP
  int64_t shared_ff = 0;     // width of the shared expert, which every token has; 0: none
  bool shared_gate = false;  // a gate multiplies the shared expert's output
  std::vector<bool> layers;  // (layers) whether the layer has experts
  RouterScore score = RouterScore::softmax_of_chosen;
  bool router_bias = false;
  bool choice_bias = false;  // added to a sigmoid router's scores for the choice alone
  int64_t groups = 1;        // of experts; a token chooses from `kept_groups` of them
  int64_t kept_groups = 1;
  double weight_scale = 1;  // multiplies the weights of the chosen
  bool bias = false;        // the experts' matmuls have biases
  Gate gate;
  double aux_coef = 0;       // weight of the load balancing loss
  bool aux_in_loss = false;  // the training loss includes it
  // The layer also has an MLP; both have norms of their own, as has the router (Gemma 4). All experts of a layer are in
  // one record.
  bool beside_mlp = false;

  bool in_layer(int64_t layer) const { return count > 0 && layers[static_cast<size_t>(layer)]; }
};

// The gated delta net that replaces attention in some layers (mixers/delta_net.h).
struct DeltaNetConfig {
  int64_t key_heads = 0;
  int64_t value_heads = 0;  // a multiple of key_heads
  int64_t key_dim = 0;      // of a head
  int64_t value_dim = 0;
  int64_t taps = 0;          // tokens that the convolution reads
  std::vector<bool> layers;  // (layers) whether the layer has it; empty: none has
  bool by_key_head = false;  // the rows of its first matmul lie by key head, in two tensors

  bool in_layer(int64_t layer) const { return !layers.empty() && layers[static_cast<size_t>(layer)]; }
};

// Mamba 2, which replaces attention in some layers (mixers/mamba2.h).
struct Mamba2Config {
  int64_t heads = 0;   // a multiple of groups; 0: the model has no Mamba
  int64_t groups = 0;  // of heads that share b and c, and of the norm
  int64_t head_dim = 0;
  int64_t state_dim = 0;
  int64_t taps = 0;       // tokens that the convolution reads
  double least_step = 0;  // limits of the step
  double most_step = std::numeric_limits<double>::infinity();
  bool bias = false;  // of the matmuls
  bool conv_bias = true;
  bool normed = true;                              // false: a gate multiplies the output, which no norm follows
  bool gate_first = true;                          // the norm's gate comes before it
  std::array<double, 5> scales = {1, 1, 1, 1, 1};  // multiply z, x', b, c and dt
  bool beside_attention = false;                   // its layers have attention too, which reads the same input
  std::vector<bool> layers;                        // (layers) whether the layer has it; empty: none has

  bool in_layer(int64_t layer) const { return !layers.empty() && layers[static_cast<size_t>(layer)]; }
};

// The gated convolution over few tokens that replaces attention in some layers (mixers/gated_conv.h).
struct GatedConvConfig {
  int64_t taps = 0;  // tokens that it reads; 0: the model has none
  bool bias = false;
  std::vector<bool> layers;  // (layers) whether the layer has it; empty: none has

  bool in_layer(int64_t layer) const { return !layers.empty() && layers[static_cast<size_t>(layer)]; }
};

// What multiplies the outputs of single matmuls, beside ModelConfig::branch_scale.
struct MatmulScales {
  double attention_out = 1;
  double mamba_out = 1;
  double mlp_in = 1;  // gate and up
  double mlp_out = 1;
};

// Latent attention (mixers/latent_attention.h): queries, keys and values are made from narrow vectors.
struct LatentConfig {
  int64_t kv_rank = 0;  // 0: the model has plain attention
  int64_t q_rank = 0;   // 0: queries are made from the input
  int64_t plain = 0;    // elements of a head's queries and keys that RoPE leaves alone; the others follow
  int64_t turning = 0;  // elements that it rotates, in keys the same for all heads
  int64_t value = 0;    // elements of a head's values, at most plain + turning
  bool pairs = true;    // RoPE pairs elements 2i and 2i + 1, instead of i and i + turning / 2
};

// The key heads of some layers.
struct HeadSizes {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool keys_are_values = false;  // values are made from the keys' matmul
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", ...
  std::string part_of;       // the multimodal class that has this model as its text part; empty: it is whole
  // Names of modules outside the layers.
  std::string embedding_module = "model.embed_tokens", norm_module = "model.norm";
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t ff = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  std::optional<HeadSizes> full_heads;  // of layers without a window; none: kv_heads and head_dim
  int64_t max_position = 0;
  double norm_eps = 1e-6;
  double norm_offset = 0;     // added to the norms' weights; 1 if files store them minus one
  bool norm_centred = false;  // layer norms without biases instead of RMS norms
  double init_std = 0.02;
  int64_t pad_id = -1;  // its embedding row gets no gradient from the lookup, as in transformers; -1: none
  bool tied = false;    // the head reads the embedding's table
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool qk_norm_spans = false;    // over all heads at once
  bool attention_gate = false;   // q_proj also has a gate for each output of attention, head by head
  bool v_norm = false;           // without a weight
  int64_t kv_readers = 0;        // the last layers, which read the keys and values of an earlier one: kv_source()
  bool wide_readers = false;     // their MLPs have twice the width
  int64_t layer_input = 0;       // elements that a token's id gives to each layer (layer_inputs.h); 0: none
  int64_t layer_input_cols = 0;  // and to all layers
  Activation activation = Activation::silu;
  double embedding_scale = 1;
  double attention_scale = 0;  // multiplies q k^T; 0: 1 / sqrt(head_dim)
  double attention_cap = 0;    // attention's logits are cap * tanh(logits / cap); 0: none
  double branch_scale = 1;     // multiplies the outputs of attention and MLP before the residual sum
  double logits_scale = 1;
  double logits_cap = 0;  // the logits are cap * tanh(logits / cap); 0: none
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  // of layers with a sliding window; none: same as `rope`
  std::vector<int64_t> window;            // (layers) sliding window, 0: none
  std::vector<bool> no_rope;              // (layers) the layer does not rotate q and k; empty: all layers do
  bool sinks = false;                     // each head has a learned logit that joins the softmax but has no value
  DeltaNetConfig delta_net;
  Mamba2Config mamba2;
  GatedConvConfig gated_conv;
  std::vector<bool> no_mixer;  // (layers) the layer has an MLP or experts alone; empty: no layer is so
  MatmulScales scales;
  LatentConfig latent;
  ExpertsConfig experts;
  std::optional<DType> dtype;  // dtype of the stored weights, if config.json names it
  bool mxfp4_experts = false;  // config.json says that files store the experts' weights in MXFP4
  // Set if config.json says that files store the layers' matrices in block-scaled fp8: its exceptions, as they are
  // written there.
  std::optional<std::vector<std::string>> fp8_exceptions;

  HeadSizes heads_of(int64_t layer) const {
    const bool full = window[static_cast<size_t>(layer)] == 0;
    return full && full_heads ? *full_heads : HeadSizes{.kv_heads = kv_heads, .head_dim = head_dim};
  }
  // The layer whose keys and values the layer reads: the last one of its kind that is no reader; -1: it has its own.
  int64_t kv_source(int64_t layer) const;
  bool gives_kv(int64_t layer) const;
  int64_t ff_of(int64_t layer) const { return wide_readers && kv_source(layer) >= 0 ? 2 * ff : ff; }
  int64_t full_head_dim() const { return full_heads ? full_heads->head_dim : head_dim; }

  // Where all layers have heads of one size.
  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }

  bool mixes(int64_t layer) const { return no_mixer.empty() || !no_mixer[static_cast<size_t>(layer)]; }
  bool attends(int64_t layer) const;
  bool rotates(int64_t layer) const { return no_rope.empty() || !no_rope[static_cast<size_t>(layer)]; }
  int64_t longest_window() const { return *std::max_element(window.begin(), window.end()); }  // 0: no layer has one

  // The same model with only these layers.
  ModelConfig with_layers(const std::vector<int64_t>& kept) const;
};

// Angle per position of each rotated pair: (turning / 2), in double. `in_long`: for documents above long_above().
std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t head_dim, bool in_long = false);

}  // namespace megatrain
