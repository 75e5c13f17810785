// Seed-OSS: Llama with biases on q, k and v but not on o. Releases name a dropout, which is not applied.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

void read_seed_oss(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .head_dim = 128, .max_position = 524288}, c);
  if (!r.object().contains("pad_token_id")) c.pad_id = 1;  // transformers' default
  c.qkv_bias = r.boolean("attention_bias", true);
  c.o_bias = r.boolean("attention_out_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  for (const char* key : {"attention_dropout", "residual_dropout"}) r.number(key, 0);
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
}

std::string seed_oss_unlike_llama_cpp(const ModelConfig& c) {
  return c.o_bias ? "with attention_out_bias" : c.mlp_bias ? "with mlp_bias" : "";
}

}  // namespace

Family seed_oss_family() {
  nlohmann::json preset =
      preset_json("SeedOssForCausalLM", "seed_oss", {5120, 27648, 64, 80, 8, 155136, false, 1e-6, 1e7});
  preset.update({{"max_position_embeddings", 524288}, {"head_dim", 128}, {"attention_bias", true}});
  return {.architecture = "SeedOssForCausalLM",
          .model_type = "seed_oss",
          .fields = {"attention_out_bias", "attention_dropout", "residual_dropout"},
          .read = read_seed_oss,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "seed_oss",
                                .unlike = seed_oss_unlike_llama_cpp,
                                .tensors = {{"post_attention_layernorm.weight", "post_attention_norm.weight"}}},
          .presets = {{"seed-oss-36b", std::move(preset)}}};
}

}  // namespace megatrain
