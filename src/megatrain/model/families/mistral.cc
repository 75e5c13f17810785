// Mistral: no biases, and a sliding window in all layers unless sliding_window is null.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

void read_mistral(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .null_kv_heads = false, .max_position = 131072}, c);
  must_be(r, "attention_bias", false, c.architecture);
  must_be(r, "mlp_bias", false, c.architecture);
  c.rope = parse_rope(r, c.max_position);
  c.window = read_window_of_all(r, c);
}

Family::Preset mistral_preset(const char* name, const PresetSizes& sizes) {
  nlohmann::json config = preset_json("MistralForCausalLM", "mistral", sizes);
  config.update({{"head_dim", 128}, {"sliding_window", nullptr}});
  return {name, std::move(config)};
}

}  // namespace

Family mistral_family() {
  return {.architecture = "MistralForCausalLM",
          .model_type = "mistral",
          .read = read_mistral,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "llama", .is_llama = true},
          .presets = {mistral_preset("mistral-7b", {4096, 14336, 32, 32, 8, 32768, false, 1e-5, 1e6}),
                      mistral_preset("mistral-small-24b", {5120, 32768, 40, 32, 8, 131072, false, 1e-5, 1e8})},
          .part_of = {
              {.architecture = "Mistral3ForConditionalGeneration", .model_type = "mistral3", .text_type = "mistral"}}};
}

}  // namespace megatrain
