// Ministral 3: Mistral with YaRN, and queries that grow with the position beyond the original context.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

// transformers' rope_parameters if config.json has none.
json absent_ministral3_rope(int64_t max_position) {
  return {{"rope_type", "yarn"},
          {"rope_theta", 1e6},
          {"factor", 16.0},
          {"original_max_position_embeddings", 16384},
          {"beta_fast", 32.0},
          {"beta_slow", 1.0},
          {"mscale", 1.0},
          {"mscale_all_dim", 1.0},
          {"llama_4_scaling_beta", 0.1},
          {"max_position_embeddings", max_position}};
}

void read_ministral3(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .head_dim = 128, .max_position = 262144}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  if (!r.object().contains("pad_token_id")) c.pad_id = 11;  // transformers' default
  for (const char* key : {"attention_bias", "mlp_bias"}) must_be(r, key, false, c.architecture);
  for (const char* key : {"rope_scaling", "use_sliding_window", "max_window_layers", "layer_types"})
    must_be(r, key, nullptr, c.architecture);
  const json parameters = r.has("rope_parameters") ? r.at("rope_parameters") : absent_ministral3_rope(c.max_position);
  c.rope = parse_growing_rope(r, parameters, c);
  c.window.assign(static_cast<size_t>(c.layers), r.has("sliding_window") ? r.positive("sliding_window") : 0);
}

std::string ministral3_unlike_llama_cpp(const ModelConfig& c) {
  return c.rope.scaling == RopeScaling::yarn ? "" : "with another RoPE scaling than yarn";
}

std::vector<LlamaCpp::Key> ministral3_llama_cpp_keys(const ModelConfig& c) {
  return {{"attention.temperature_scale", c.rope.query_growth}};
}

Family::Preset ministral3_preset(const char* name, const PresetSizes& sizes) {
  json config = preset_json("Ministral3ForCausalLM", "ministral3", sizes);
  config.erase("rope_theta");
  config.update({{"max_position_embeddings", 262144}, {"head_dim", 128}});
  return {name, std::move(config)};
}

}  // namespace

Family ministral3_family() {
  return {
      .architecture = "Ministral3ForCausalLM",
      .model_type = "ministral3",
      .read = read_ministral3,
      .tensors = dense_tensors,
      .phases = dense_phases,
      .llama_cpp = LlamaCpp{.name = "mistral3",
                            .is_llama = true,
                            .unlike = ministral3_unlike_llama_cpp,
                            .keys = ministral3_llama_cpp_keys},
      .presets = {ministral3_preset("ministral3-8b", {4096, 14336, 34, 32, 8, 131072, false, 1e-5, 1e6}),
                  ministral3_preset("ministral3-14b", {5120, 16384, 40, 32, 8, 131072, false, 1e-5, 1e6})},
      .part_of = {
          {.architecture = "Mistral3ForConditionalGeneration", .model_type = "mistral3", .text_type = "ministral3"}}};
}

}  // namespace megatrain
