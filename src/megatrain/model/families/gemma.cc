// Gemma: GeGLU, a scaled embedding, and norms whose files store their weights minus one.
#include <cmath>

#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_gemma(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 16, .null_kv_heads = false, .head_dim = 256, .max_position = 8192}, c);
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  // transformers takes "gelu" of old files for its tanh form, and hidden_activation is of yet older ones.
  if (r.string("hidden_act", "gelu") != "gelu") must_be(r, "hidden_act", "gelu_pytorch_tanh", c.architecture);
  must_be(r, "hidden_activation", "gelu_pytorch_tanh", c.architecture);
  for (const char* key : {"mlp_bias", "use_bidirectional_attention"}) must_be(r, key, false, c.architecture);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  c.norm_offset = 1;
  c.activation = Activation::gelu_tanh;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
}

Family::Preset gemma_preset(const char* name, const PresetSizes& sizes) {
  json config = preset_json("GemmaForCausalLM", "gemma", sizes);
  config.update({{"hidden_act", "gelu_pytorch_tanh"}, {"head_dim", 256}, {"max_position_embeddings", 8192}});
  return {name, std::move(config)};
}

}  // namespace

Family gemma_family() {
  return {.architecture = "GemmaForCausalLM",
          .model_type = "gemma",
          .fields = {"hidden_act", "hidden_activation", "use_bidirectional_attention"},
          .read = read_gemma,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .presets = {gemma_preset("gemma-2b", {2048, 16384, 18, 8, 1, 256000, true, 1e-6, 1e4}),
                      gemma_preset("gemma-7b", {3072, 24576, 28, 16, 16, 256000, true, 1e-6, 1e4})}};
}

}  // namespace megatrain
