// Llama: two fields of config.json enable biases; there is no sliding window.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

void read_llama(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 2048}, c);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
}

Family::Preset llama_preset(const char* name, const PresetSizes& sizes) {
  return {name, preset_json("LlamaForCausalLM", "llama", sizes)};
}

}  // namespace

Family llama_family() {
  constexpr double kEps = 1e-5, kTheta = 5e5;
  return {.architecture = "LlamaForCausalLM",
          .model_type = "llama",
          .read = read_llama,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "llama", .is_llama = true},
          .presets = {llama_preset("llama3-1b", {2048, 8192, 16, 32, 8, 128256, true, kEps, kTheta}),
                      llama_preset("llama3-3b", {3072, 8192, 28, 24, 8, 128256, true, kEps, kTheta}),
                      llama_preset("llama3-8b", {4096, 14336, 32, 32, 8, 128256, false, kEps, kTheta}),
                      llama_preset("llama3-70b", {8192, 28672, 80, 64, 8, 128256, false, kEps, kTheta}),
                      llama_preset("120b", {10240, 32768, 94, 80, 8, 128256, false, kEps, kTheta})}};
}

}  // namespace megatrain
