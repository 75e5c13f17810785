// DeepSeek V3, R1 and V3.1, and Kimi K2: latent attention with YaRN, dense first layers, and experts in groups with a
// sigmoid router beside shared ones. A layer behind the last one, for predicting several tokens, is not used.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/latent_family.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_deepseek_v3(const ConfigReader& r, ModelConfig& c) {
  read_latent_sizes(
      r, {.q_rank = 1536, .kv_rank = 512, .plain = 128, .turning = 64, .value = 128, .max_position = 4096}, c);
  // Read by the code that came with the release; transformers has these values built in.
  must_be(r, "topk_method", "noaux_tc", c.architecture);
  must_be(r, "scoring_func", "sigmoid", c.architecture);
  must_be(r, "moe_layer_freq", 1, c.architecture);
  read_sigmoid_experts(r, {.count = 256, .chosen = 8, .ff = 2048, .groups = 8, .kept_groups = 4, .weight_scale = 2.5},
                       c);
  c.experts.layers = read_dense_first(r, c.layers, 3);
}

json deepseek_v3_preset() {
  json config =
      preset_json("DeepseekV3ForCausalLM", "deepseek_v3", {7168, 18432, 61, 128, 128, 129280, false, 1e-6, 10000.0});
  config.update({{"max_position_embeddings", 163840},
                 {"q_lora_rank", 1536},
                 {"kv_lora_rank", 512},
                 {"qk_nope_head_dim", 128},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 128},
                 {"n_routed_experts", 256},
                 {"num_experts_per_tok", 8},
                 {"n_shared_experts", 1},
                 {"moe_intermediate_size", 2048},
                 {"routed_scaling_factor", 2.5},
                 {"norm_topk_prob", true},
                 {"n_group", 8},
                 {"topk_group", 4},
                 {"first_k_dense_replace", 3},
                 {"num_nextn_predict_layers", 1},
                 {"rope_scaling",
                  {{"type", "yarn"},
                   {"factor", 40},
                   {"beta_fast", 32},
                   {"beta_slow", 1},
                   {"mscale", 1.0},
                   {"mscale_all_dim", 1.0},
                   {"original_max_position_embeddings", 4096}}}});
  return config;
}

json kimi_k2_preset() {
  json config = deepseek_v3_preset();
  config.update(
      preset_json("DeepseekV3ForCausalLM", "kimi_k2", {7168, 18432, 61, 64, 64, 163840, false, 1e-6, 50000.0}));
  config.update({{"max_position_embeddings", 131072},
                 {"n_routed_experts", 384},
                 {"routed_scaling_factor", 2.827},
                 {"n_group", 1},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1},
                 {"num_nextn_predict_layers", 0}});
  config["rope_scaling"].update({{"factor", 32.0}, {"beta_fast", 1.0}});
  return config;
}

// What Kimi K2.5 and K2.6 have beside text_config.
std::vector<std::string> kimi_fields() {
  return {"ignore_index",
          "media_placeholder_token_id",
          "projection_hidden_size",
          "projection_layer_norm_eps",
          "use_unified_vision_chunk",
          "video_placeholder"};
}

}  // namespace

Family deepseek_v3_family() {
  return {.architecture = "DeepseekV3ForCausalLM",
          .model_type = "deepseek_v3",
          .other_types = {"kimi_k2"},
          .fields = sigmoid_expert_fields(latent_fields({"aux_loss_alpha", "ep_size", "first_k_dense_replace",
                                                         "moe_layer_freq", "scoring_func", "seq_aux", "topk_method"})),
          .read = read_deepseek_v3,
          .tensors = sigmoid_expert_tensors,
          .phases = layer_phases,
          .presets = {{"deepseek-v3", deepseek_v3_preset()}, {"kimi-k2", kimi_k2_preset()}},
          // transformers' name of the class, and that of the code in the releases
          .part_of = {{.architecture = "Kimi_K25ForConditionalGeneration",
                       .model_type = "kimi_k25",
                       .text_type = "deepseek_v3",
                       .fields = kimi_fields()},
                      {.architecture = "KimiK25ForConditionalGeneration",
                       .model_type = "kimi_k25",
                       .text_type = "deepseek_v3",
                       .fields = kimi_fields()}}};
}

}  // namespace megatrain
