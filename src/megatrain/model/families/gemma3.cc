// Gemma 3: GeGLU, a scaled embedding, norms before and after attention and MLP. Files store the weights of
// the norms minus one. Between global layers there are local ones, which have a sliding window and their own RoPE.
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

// Whether each layer is local: by layer_types if given, otherwise all but every n-th.
std::vector<bool> read_local(const ConfigReader& r, int64_t layers) {
  const int64_t pattern = r.positive("sliding_window_pattern", 6);
  std::vector<bool> local;
  for (int64_t l = 0; l < layers; ++l) local.push_back((l + 1) % pattern != 0);
  return read_layer_types(r, layers).value_or(local);
}

// The RoPE of one kind of layers: its part of rope_parameters, or the older top-level fields.
RopeConfig read_gemma3_rope(const ConfigReader& r, const char* kind, const char* theta_key, double theta, bool scaled,
                            int64_t max_position) {
  json object = json::object();
  if (r.has("rope_parameters")) {
    const json& parameters = r.at("rope_parameters");
    if (!parameters.is_object() || !parameters.contains(kind) || !parameters.at(kind).is_object() ||
        parameters.size() != 2)
      fail_input(fmt::format("{}: 'rope_parameters' is {}; it must hold 'full_attention' and 'sliding_attention'",
                             r.where(), parameters.dump()));
    object["rope_parameters"] = parameters.at(kind);
  }
  const bool own = object.contains("rope_parameters") && object.at("rope_parameters").contains("rope_theta");
  if (r.has(theta_key)) {
    object["rope_theta"] = r.at(theta_key);
  } else if (!own) {
    object["rope_theta"] = theta;
  }
  if (scaled && r.has("rope_scaling")) {
    const json& scaling = r.at("rope_scaling");
    if (scaling.is_object() && scaling.contains("type") && !scaling.contains("rope_type"))
      fail_input(
          fmt::format("{}: 'rope_scaling' has 'type' but no 'rope_type', and some versions of transformers read only "
                      "'rope_type': write it too",
                      r.where()));
    object["rope_scaling"] = scaling;
  }
  return parse_rope(ConfigReader(object, fmt::format("{}: {}", r.where(), kind)), max_position);
}

void read_gemma3(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 4, .null_kv_heads = false, .head_dim = 256, .max_position = 131072}, c);
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  const auto only = [&](const char* key, const json& supported) {
    if (r.object().contains(key) && r.at(key) != supported)
      fail_input(fmt::format("{}: '{}' is {}; megatrain supports only {} here", r.where(), key, r.at(key).dump(),
                             supported.dump()));
  };
  for (const char* key : {"hidden_activation", "hidden_act"}) only(key, "gelu_pytorch_tanh");
  only("attn_logit_softcapping", nullptr);
  only("final_logit_softcapping", nullptr);
  if (r.has("use_bidirectional_attention")) only("use_bidirectional_attention", false);
  if (r.has("attention_bias")) only("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  for (const char* key : {"use_sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);

  c.qk_norm = true;
  c.norm_offset = 1;
  c.activation = Activation::gelu_tanh;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
  c.attention_scale = 1 / std::sqrt(r.positive_number("query_pre_attn_scalar", 256));
  c.rope = read_gemma3_rope(r, "full_attention", "rope_theta", 1e6, true, c.max_position);
  c.window_rope = read_gemma3_rope(r, "sliding_attention", "rope_local_base_freq", 1e4, false, c.max_position);
  const bool none = r.object().contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = r.positive("sliding_window", 4096);
  for (const bool local : read_local(r, c.layers)) {
    if (local && none)
      fail_input(r.where() + ": 'sliding_window' is null, but some layers are local; give its size in tokens");
    c.window.push_back(local ? window : 0);
  }
}

std::vector<std::vector<TensorSpec>> gemma3_tensors(const ModelConfig& c, int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const auto matrix = [&](int operand, const char* module, int64_t rows, int64_t cols) {
    return TensorSpec{
        .name = fmt::format("{}{}.weight", prefix, module), .rows = rows, .cols = cols, .operand = operand};
  };
  const auto norm = [&](int operand, const char* module, int64_t size) {
    TensorSpec tensor = matrix(operand, module, 1, size);
    tensor.role = TensorRole::norm;
    return tensor;
  };
  using At = BlockOperand;
  return {{norm(At::input_norm, "input_layernorm", c.hidden), matrix(At::qkv, "self_attn.q_proj", c.q_dim(), c.hidden),
           matrix(At::qkv, "self_attn.k_proj", c.kv_dim(), c.hidden),
           matrix(At::qkv, "self_attn.v_proj", c.kv_dim(), c.hidden), norm(At::q_norm, "self_attn.q_norm", c.head_dim),
           norm(At::k_norm, "self_attn.k_norm", c.head_dim), matrix(At::o, "self_attn.o_proj", c.hidden, c.q_dim()),
           norm(At::o_norm, "post_attention_layernorm", c.hidden),
           norm(At::post_norm, "pre_feedforward_layernorm", c.hidden),
           matrix(At::gate_up, "mlp.gate_proj", c.ff, c.hidden), matrix(At::gate_up, "mlp.up_proj", c.ff, c.hidden),
           matrix(At::down, "mlp.down_proj", c.hidden, c.ff),
           norm(At::down_norm, "post_feedforward_layernorm", c.hidden)}};
}

constexpr int64_t kPeriod = 6;  // every 6th layer is global unless a GGUF file says otherwise

// The smallest n such that every n-th layer is global and the others are local; 0: there is none.
int64_t period_of(const ModelConfig& c) {
  for (int64_t period = 1; period <= c.layers; ++period) {
    if (windows_repeat(c, period)) return period;
  }
  return 0;
}

std::string gemma3_unlike_llama_cpp(const ModelConfig& c) {
  constexpr int64_t kLayersOf27B = 62;  // llama.cpp detects Gemma 3 27B by this
  const double scale = c.layers == kLayersOf27B
                           ? 1 / std::sqrt(static_cast<double>(c.hidden) / static_cast<double>(c.heads))
                           : 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (std::abs(c.attention_scale - scale) > 1e-6 * scale)
    return fmt::format("with a query_pre_attn_scalar of {:g} (llama.cpp takes {:g} here)",
                       1 / (c.attention_scale * c.attention_scale), 1 / (scale * scale));
  if (c.window_rope && c.window_rope->scaling != RopeScaling::none) return "whose local layers scale RoPE";
  if (c.rope.scaling != RopeScaling::none && c.rope.scaling != RopeScaling::linear)
    return "with another RoPE scaling than linear";
  if (c.longest_window() > 0 && !windows_repeat(c, kPeriod) && period_of(c) == 0)
    return "whose global layers are not at every n-th place (layer_types)";
  return "";
}

std::vector<LlamaCpp::Key> gemma3_llama_cpp_keys(const ModelConfig& c) {
  if (c.longest_window() == 0) return {};
  std::vector<LlamaCpp::Key> keys = {{"attention.sliding_window", c.longest_window()},
                                     {"rope.freq_base_swa", c.window_rope.value_or(c.rope).theta}};
  if (!windows_repeat(c, kPeriod)) keys.push_back({"attention.sliding_window_pattern", period_of(c)});
  return keys;
}

}  // namespace

Family gemma3_family() {
  return {.architecture = "Gemma3ForCausalLM",
          .model_type = "gemma3_text",
          // transformers writes the last one next to layer_types, and never reads it.
          .fields = {"hidden_activation", "hidden_act", "query_pre_attn_scalar", "rope_local_base_freq",
                     "sliding_window_pattern", "attn_logit_softcapping", "final_logit_softcapping",
                     "use_bidirectional_attention", "_sliding_window_pattern"},
          .read = read_gemma3,
          .tensors = gemma3_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "gemma3",
                                .has_windows = true,
                                .unlike = gemma3_unlike_llama_cpp,
                                .keys = gemma3_llama_cpp_keys,
                                .tensors = {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
                                            {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
                                            {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}}},
          .part_of = {{.architecture = "Gemma3ForConditionalGeneration",
                       .model_type = "gemma3",
                       .text_type = "gemma3_text",
                       .absent = {{"vocab_size", 262208},
                                  {"hidden_size", 2304},
                                  {"intermediate_size", 9216},
                                  {"num_hidden_layers", 26},
                                  {"num_attention_heads", 8}}}}};
}

}  // namespace megatrain
