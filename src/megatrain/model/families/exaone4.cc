// EXAONE 4: norms behind attention and MLP alone, and a norm for each query and key head. In a model with sliding
// windows, the layers without one have no RoPE.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Whether each layer has the window: by layer_types if given, otherwise all but every n-th.
std::vector<bool> read_exaone4_local(const ConfigReader& r, int64_t layers, bool none) {
  const std::optional<std::vector<bool>> types = read_layer_types(r, layers);
  const json pattern = r.has("sliding_window_pattern") ? r.at("sliding_window_pattern") : json(4);
  if (!types && !none && (!pattern.is_number_integer() || pattern < 1))
    fail_input(fmt::format("{}: 'sliding_window_pattern' is {}, which needs 'layer_types' beside it", r.where(),
                           pattern.dump()));
  std::vector<bool> local;
  for (int64_t l = 0; l < layers; ++l)
    local.push_back(types ? (*types)[static_cast<size_t>(l)] : !none && (l + 1) % pattern.get<int64_t>() != 0);
  return local;
}

void read_exaone4(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 32, .null_kv_heads = false, .max_position = 2048}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  for (const char* key : {"attention_bias", "mlp_bias"}) must_be(r, key, false, c.architecture);
  for (const char* key : {"use_sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  c.qk_norm = true;
  c.rope = parse_rope(r, c.max_position);
  const bool none = r.object().contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = r.positive("sliding_window", 4096);
  for (const bool local : read_exaone4_local(r, c.layers, none)) {
    if (local && none)
      fail_input(r.where() + ": 'sliding_window' is null, but some layers are local; give its size in tokens");
    c.window.push_back(local ? window : 0);
    c.no_rope.push_back(!none && !local);
  }
}

std::vector<std::vector<TensorSpec>> exaone4_tensors(const ModelConfig& c, int64_t layer) {
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

// llama.cpp detects the size with windows by its number of layers.
std::string exaone4_unlike_llama_cpp(const ModelConfig& c) {
  constexpr int64_t kLayersOf32B = 64, kPeriod = 4;
  const bool windows = c.longest_window() > 0;
  if (windows != (c.layers == kLayersOf32B) || (windows && !windows_repeat(c, kPeriod)))
    return "whose windows are not those of the released sizes";
  if (!windows && !c.rotates(0)) return "with neither windows nor RoPE";
  return heads_that_do_not_fill(c);
}

std::vector<LlamaCpp::Key> exaone4_llama_cpp_keys(const ModelConfig& c) {
  if (c.longest_window() == 0) return {};
  return {{"attention.sliding_window", c.longest_window()}};
}

json exaone4_preset_json(const PresetSizes& sizes) {
  json config = preset_json("Exaone4ForCausalLM", "exaone4", sizes);
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 16.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  return config;
}

}  // namespace

Family exaone4_family() {
  json small = exaone4_preset_json({2048, 4096, 30, 32, 8, 102400, true, 1e-5, 1e6});
  small.update({{"max_position_embeddings", 65536}, {"head_dim", 64}, {"sliding_window", nullptr}});
  json large = exaone4_preset_json({5120, 27392, 64, 40, 8, 102400, false, 1e-5, 1e6});
  large.update({{"max_position_embeddings", 131072}, {"head_dim", 128}, {"sliding_window", 4096}});
  return {.architecture = "Exaone4ForCausalLM",
          .model_type = "exaone4",
          .fields = {"sliding_window_pattern"},
          .read = read_exaone4,
          .tensors = exaone4_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "exaone4",
                                .llama3_rope = true,
                                .has_windows = true,
                                .unlike = exaone4_unlike_llama_cpp,
                                .keys = exaone4_llama_cpp_keys,
                                .tensors = {{"post_attention_layernorm.weight", "post_attention_norm.weight"},
                                            {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}}},
          .presets = {{"exaone4-1.2b", std::move(small)}, {"exaone4-32b", std::move(large)}}};
}

}  // namespace megatrain
