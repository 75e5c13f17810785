// OLMo 2 and 3: norms stand only behind attention and MLP, and those of queries and keys span all heads. OLMo 3 has
// layers with a sliding window, whose RoPE is not scaled.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr double kOlmo3Theta = 5e5;
constexpr int64_t kOlmo3Period = 4;  // every 4th layer sees all tokens

void read_olmo(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 2048}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  if (!r.object().contains("pad_token_id")) c.pad_id = 1;  // transformers' default
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  c.qk_norm = c.qk_norm_spans = true;
}

void read_olmo2(const ConfigReader& r, ModelConfig& c) {
  read_olmo(r, c);
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
}

// The RoPE of one kind of layers: its part of rope_parameters, or the older top-level fields. Of these, rope_scaling is
// for the layers without a window.
RopeConfig read_olmo3_rope(const ConfigReader& r, const char* kind, bool scaled, int64_t max_position) {
  json object = json::object();
  if (r.has("rope_parameters")) {
    const json& parameters = r.at("rope_parameters");
    if (!parameters.is_object() || !parameters.contains(kind) || !parameters.at(kind).is_object() ||
        parameters.size() != 2 || r.has("rope_scaling"))
      fail_input(
          fmt::format("{}: 'rope_parameters' is {}; it must hold 'full_attention' and 'sliding_attention', without a "
                      "'rope_scaling' beside it",
                      r.where(), parameters.dump()));
    object["rope_parameters"] = parameters.at(kind);
  } else if (scaled && r.has("rope_scaling")) {
    object["rope_scaling"] = r.at("rope_scaling");
  }
  const bool own = object.contains("rope_parameters") && object.at("rope_parameters").contains("rope_theta");
  if (!own && r.number("rope_theta", kOlmo3Theta) != kOlmo3Theta)
    fail_input(
        fmt::format("{}: 'rope_theta' is {}, which transformers 5 takes for the layers without a window alone; write "
                    "each kind's rope_theta to 'rope_parameters'",
                    r.where(), r.at("rope_theta").dump()));
  if (r.has("rope_theta")) object["rope_theta"] = r.at("rope_theta");
  return parse_rope(ConfigReader(object, fmt::format("{}: {}", r.where(), kind)), max_position, kOlmo3Theta);
}

void read_olmo3(const ConfigReader& r, ModelConfig& c) {
  read_olmo(r, c);
  for (const char* key : {"use_sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  c.rope = read_olmo3_rope(r, "full_attention", true, c.max_position);
  c.window_rope = read_olmo3_rope(r, "sliding_attention", false, c.max_position);
  const bool none = r.object().contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = r.positive("sliding_window", 4096);
  const std::optional<std::vector<bool>> types = read_layer_types(r, c.layers);
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool local = types ? (*types)[static_cast<size_t>(l)] : (l + 1) % kOlmo3Period != 0;
    if (local && none)
      fail_input(r.where() + ": 'sliding_window' is null, but some layers are local; give its size in tokens");
    c.window.push_back(local ? window : 0);
  }
}

std::vector<std::vector<TensorSpec>> olmo_tensors(const ModelConfig& c, int64_t layer) {
  std::vector<TensorSpec> tensors = dense_tensors(c, layer).front();
  using At = BlockOperand;
  std::erase_if(tensors, [](const TensorSpec& tensor) { return tensor.operand == At::input_norm; });
  for (TensorSpec& tensor : tensors) {
    if (tensor.operand == At::post_norm) tensor.operand = At::o_norm;
  }
  tensors.push_back({.name = fmt::format("model.layers.{}.post_feedforward_layernorm.weight", layer),
                     .rows = 1,
                     .cols = c.hidden,
                     .role = TensorRole::norm,
                     .operand = At::down_norm});
  return {std::move(tensors)};
}

std::string olmo_unlike_llama_cpp(const ModelConfig& c) {
  if (c.o_bias) return "with attention_bias";
  if (c.tied) return "with tie_word_embeddings";
  if (c.window_rope && c.window_rope->scaling != RopeScaling::none) return "whose layers with a window scale RoPE";
  if (c.window_rope && c.window_rope->theta != c.rope.theta) return "whose kinds of layers differ in rope_theta";
  if (c.longest_window() > 0 && !windows_repeat(c, kOlmo3Period))
    return "whose layers without a window are not every fourth (layer_types)";
  return heads_that_do_not_fill(c);
}

std::vector<LlamaCpp::Key> olmo_llama_cpp_keys(const ModelConfig& c) {
  if (c.longest_window() == 0) return {};
  return {{"attention.sliding_window", c.longest_window()}};
}

LlamaCpp olmo_llama_cpp() {
  return {.name = "olmo2",
          .has_windows = true,
          .unlike = olmo_unlike_llama_cpp,
          .keys = olmo_llama_cpp_keys,
          .tensors = {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
                      {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}}};
}

Family::Preset olmo2_preset(const char* name, const PresetSizes& sizes) {
  json config = preset_json("Olmo2ForCausalLM", "olmo2", sizes);
  config.update({{"max_position_embeddings", 4096}, {"pad_token_id", 100277}});
  return {name, std::move(config)};
}

Family::Preset olmo3_preset(const char* name, const PresetSizes& sizes) {
  json config = preset_json("Olmo3ForCausalLM", "olmo3", sizes);
  config.update({{"max_position_embeddings", 65536},
                 {"pad_token_id", 100277},
                 {"sliding_window", 4096},
                 {"rope_scaling",
                  {{"rope_type", "yarn"},
                   {"factor", 8.0},
                   {"original_max_position_embeddings", 8192},
                   {"attention_factor", 1.2079441541679836},
                   {"beta_fast", 32.0},
                   {"beta_slow", 1.0}}}});
  return {name, std::move(config)};
}

}  // namespace

Family olmo2_family() {
  return {.architecture = "Olmo2ForCausalLM",
          .model_type = "olmo2",
          .read = read_olmo2,
          .tensors = olmo_tensors,
          .phases = dense_phases,
          .llama_cpp = olmo_llama_cpp(),
          .presets = {olmo2_preset("olmo2-1b", {2048, 8192, 16, 16, 16, 100352, false, 1e-6, 5e5}),
                      olmo2_preset("olmo2-7b", {4096, 11008, 32, 32, 32, 100352, false, 1e-6, 5e5}),
                      olmo2_preset("olmo2-13b", {5120, 13824, 40, 40, 40, 100352, false, 1e-6, 5e5}),
                      olmo2_preset("olmo2-32b", {5120, 27648, 64, 40, 8, 100352, false, 1e-6, 5e5})}};
}

Family olmo3_family() {
  return {.architecture = "Olmo3ForCausalLM",
          .model_type = "olmo3",
          .read = read_olmo3,
          .tensors = olmo_tensors,
          .phases = dense_phases,
          .llama_cpp = olmo_llama_cpp(),
          .presets = {olmo3_preset("olmo3-7b", {4096, 11008, 32, 32, 32, 100278, false, 1e-6, kOlmo3Theta}),
                      olmo3_preset("olmo3-32b", {5120, 27648, 64, 40, 8, 100278, false, 1e-6, kOlmo3Theta})}};
}

}  // namespace megatrain
