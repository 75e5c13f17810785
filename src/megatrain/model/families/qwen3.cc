// Qwen 3: a norm for each query and key head, and a sliding window that use_sliding_window enables.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

void read_qwen3(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 32, .head_dim = 128, .max_position = 32768}, c);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  c.qk_norm = true;
  c.rope = parse_rope(r, c.max_position);
  c.window = read_switched_window(r, c);
}

Family::Preset qwen3_preset(const char* name, const PresetSizes& sizes) {
  return {name, preset_json("Qwen3ForCausalLM", "qwen3", sizes)};  // head_dim is 128, the default
}

std::string qwen3_unlike_llama_cpp(const ModelConfig& c) { return c.o_bias ? "with attention_bias" : ""; }

}  // namespace

Family qwen3_family() {
  constexpr double kEps = 1e-6, kTheta = 1e6;
  return {.architecture = "Qwen3ForCausalLM",
          .model_type = "qwen3",
          .read = read_qwen3,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "qwen3", .unlike = qwen3_unlike_llama_cpp},
          .presets = {qwen3_preset("qwen3-0.6b", {1024, 3072, 28, 16, 8, 151936, true, kEps, kTheta}),
                      qwen3_preset("qwen3-1.7b", {2048, 6144, 28, 16, 8, 151936, true, kEps, kTheta}),
                      qwen3_preset("qwen3-4b", {2560, 9728, 36, 32, 8, 151936, true, kEps, kTheta}),
                      qwen3_preset("qwen3-8b", {4096, 12288, 36, 32, 8, 151936, false, kEps, kTheta}),
                      qwen3_preset("qwen3-14b", {5120, 17408, 40, 40, 8, 151936, false, kEps, kTheta}),
                      qwen3_preset("qwen3-32b", {5120, 25600, 64, 64, 8, 151936, false, kEps, kTheta})},
          .part_of = {{.architecture = "Qwen3VLForConditionalGeneration",
                       .model_type = "qwen3_vl",
                       .text_type = "qwen3_vl_text",
                       .absent = {{"vocab_size", 151936},
                                  {"hidden_size", 4096},
                                  {"intermediate_size", 22016},
                                  {"num_hidden_layers", 32},
                                  {"num_attention_heads", 32},
                                  {"max_position_embeddings", 128000},
                                  {"rope_theta", 5e5}},
                       .only = {{"use_sliding_window", false}}}}};
}

}  // namespace megatrain
