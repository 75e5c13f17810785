// Qwen 2 and 2.5: biases on q, k and v, and a sliding window that use_sliding_window enables.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

void read_qwen2(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 32, .max_position = 32768}, c);
  must_be(r, "attention_bias", false, c.architecture);
  c.qkv_bias = true;
  must_be(r, "mlp_bias", false, c.architecture);
  c.rope = parse_rope(r, c.max_position);
  c.window = read_switched_window(r, c);
}

Family::Preset qwen2_preset(const char* name, const PresetSizes& sizes) {
  return {name, preset_json("Qwen2ForCausalLM", "qwen2", sizes)};
}

}  // namespace

Family qwen2_family() {
  constexpr double kEps = 1e-6, kTheta = 1e6;
  return {.architecture = "Qwen2ForCausalLM",
          .model_type = "qwen2",
          .read = read_qwen2,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "qwen2", .unlike = heads_that_do_not_fill},
          .presets = {qwen2_preset("qwen2.5-0.5b", {896, 4864, 24, 14, 2, 151936, true, kEps, kTheta}),
                      qwen2_preset("qwen2.5-1.5b", {1536, 8960, 28, 12, 2, 151936, true, kEps, kTheta}),
                      qwen2_preset("qwen2.5-3b", {2048, 11008, 36, 16, 2, 151936, true, kEps, kTheta}),
                      qwen2_preset("qwen2.5-7b", {3584, 18944, 28, 28, 4, 152064, false, kEps, kTheta}),
                      qwen2_preset("qwen2.5-14b", {5120, 13824, 48, 40, 8, 152064, false, kEps, kTheta}),
                      qwen2_preset("qwen2.5-32b", {5120, 27648, 64, 40, 8, 152064, false, kEps, kTheta}),
                      qwen2_preset("qwen2.5-72b", {8192, 29568, 80, 64, 8, 152064, false, kEps, kTheta})},
          .part_of = {{.architecture = "Qwen2_5_VLForConditionalGeneration",
                       .model_type = "qwen2_5_vl",
                       .text_type = "qwen2_5_vl_text",
                       .absent = {{"vocab_size", 152064},
                                  {"hidden_size", 8192},
                                  {"intermediate_size", 29568},
                                  {"num_hidden_layers", 80},
                                  {"num_attention_heads", 64},
                                  {"num_key_value_heads", 8},
                                  {"max_window_layers", 80},
                                  {"rms_norm_eps", 1e-5},
                                  {"rope_theta", 1e6}},
                       .flat = true}}};
}

}  // namespace megatrain
