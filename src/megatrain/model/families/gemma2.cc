// Gemma 2: Gemma 3's norms, windows in every second layer, one RoPE, and caps of attention's and of the final logits.
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_gemma2_caps(const ConfigReader& r, ModelConfig& c) {
  const auto cap = [&](const char* key, double absent) {
    const bool none = r.object().contains(key) && !r.has(key);
    return none ? 0 : r.positive_number(key, absent);
  };
  c.attention_cap = cap("attn_logit_softcapping", 50);
  c.logits_cap = cap("final_logit_softcapping", 30);
}

void read_gemma2(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 4, .null_kv_heads = false, .head_dim = 256, .max_position = 8192}, c);
  if (c.hidden % c.heads != 0)
    fail_input(fmt::format("{}: hidden_size {} is not divisible by num_attention_heads {}, which transformers refuses",
                           r.where(), c.hidden, c.heads));
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  for (const char* key : {"hidden_activation", "hidden_act"}) must_be(r, key, "gelu_pytorch_tanh", c.architecture);
  for (const char* key : {"attention_bias", "mlp_bias", "use_bidirectional_attention"})
    must_be(r, key, false, c.architecture);
  for (const char* key : {"use_sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  read_gemma2_caps(r, c);
  c.norm_offset = 1;
  c.activation = Activation::gelu_tanh;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
  r.refuse_null("query_pre_attn_scalar");
  c.attention_scale = 1 / std::sqrt(r.positive_number("query_pre_attn_scalar", 256));
  c.rope = parse_rope(r, c.max_position);
  if (r.has("sliding_window_size"))
    must_be(r, "sliding_window_size", r.positive("sliding_window", 4096), c.architecture);
  const bool none = r.object().contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = r.positive("sliding_window", 4096);
  const std::optional<std::vector<bool>> types = read_layer_types(r, c.layers);
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool local = types ? (*types)[static_cast<size_t>(l)] : l % 2 == 0;
    if (local && none)
      fail_input(r.where() + ": 'sliding_window' is null, but some layers are local; give its size in tokens");
    c.window.push_back(local ? window : 0);
  }
}

std::vector<std::vector<TensorSpec>> gemma2_tensors(const ModelConfig& c, int64_t layer) {
  std::vector<TensorSpec> tensors = dense_tensors(c, layer).front();
  using At = BlockOperand;
  for (TensorSpec& tensor : tensors) {
    if (tensor.operand == At::post_norm) tensor.operand = At::o_norm;
  }
  const auto add = [&](int operand, const char* name) {
    tensors.push_back({.name = fmt::format("model.layers.{}.{}.weight", layer, name),
                       .rows = 1,
                       .cols = c.hidden,
                       .role = TensorRole::norm,
                       .operand = operand});
  };
  add(At::post_norm, "pre_feedforward_layernorm");
  add(At::down_norm, "post_feedforward_layernorm");
  return {std::move(tensors)};
}

Family::Preset gemma2_preset(const char* name, const PresetSizes& sizes, int64_t head_dim, double scalar) {
  json config = preset_json("Gemma2ForCausalLM", "gemma2", sizes);
  config.erase("hidden_act");
  config.update({{"hidden_activation", "gelu_pytorch_tanh"},
                 {"head_dim", head_dim},
                 {"query_pre_attn_scalar", scalar},
                 {"max_position_embeddings", 8192},
                 {"sliding_window", 4096},
                 {"attn_logit_softcapping", 50.0},
                 {"final_logit_softcapping", 30.0}});
  return {name, std::move(config)};
}

}  // namespace

Family gemma2_family() {
  return {.architecture = "Gemma2ForCausalLM",
          .model_type = "gemma2",
          .fields = {"hidden_activation", "sliding_window_size", "hidden_act", "query_pre_attn_scalar",
                     "attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"},
          .read = read_gemma2,
          .tensors = gemma2_tensors,
          .phases = dense_phases,
          .presets = {gemma2_preset("gemma2-2b", {2304, 9216, 26, 8, 4, 256000, true, 1e-6, 1e4}, 256, 256),
                      gemma2_preset("gemma2-9b", {3584, 14336, 42, 16, 8, 256000, true, 1e-6, 1e4}, 256, 256),
                      gemma2_preset("gemma2-27b", {4608, 36864, 46, 32, 16, 256000, true, 1e-6, 1e4}, 128, 144)}};
}

}  // namespace megatrain
