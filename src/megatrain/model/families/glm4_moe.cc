// GLM 4.5 and 4.6: half of each head rotates, the first layers are dense, and the others have experts with a sigmoid
// router beside shared ones. Files hold a layer for predicting several tokens behind the last one; it is not used.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_glm4_moe(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .null_kv_heads = false, .max_position = 131072}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  c.qkv_bias = r.boolean("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  c.qk_norm = r.boolean("use_qk_norm", false);
  c.rope = parse_partial_rope(r, c, 10000.0, 0.5);
  c.window = read_no_window(r, c);
  read_sigmoid_experts(r, {.count = 128, .chosen = 8, .ff = 1408, .groups = 1, .kept_groups = 1, .weight_scale = 1.0},
                       c);
  c.experts.layers = read_dense_first(r, c.layers, 1);
}

json glm4_5_air_preset() {
  json config = preset_json("Glm4MoeForCausalLM", "glm4_moe", {4096, 10944, 46, 96, 8, 151552, false, 1e-5, 1e6});
  config.update({{"head_dim", 128},
                 {"max_position_embeddings", 131072},
                 {"attention_bias", true},
                 {"use_qk_norm", false},
                 {"partial_rotary_factor", 0.5},
                 {"n_routed_experts", 128},
                 {"num_experts_per_tok", 8},
                 {"n_shared_experts", 1},
                 {"moe_intermediate_size", 1408},
                 {"routed_scaling_factor", 1.0},
                 {"norm_topk_prob", true},
                 {"n_group", 1},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1},
                 {"num_nextn_predict_layers", 1}});
  return config;
}

json glm4_5_preset() {
  json config = glm4_5_air_preset();
  config.update({{"hidden_size", 5120},
                 {"intermediate_size", 12288},
                 {"num_hidden_layers", 92},
                 {"use_qk_norm", true},
                 {"n_routed_experts", 160},
                 {"moe_intermediate_size", 1536},
                 {"routed_scaling_factor", 2.5},
                 {"first_k_dense_replace", 3}});
  return config;
}

}  // namespace

Family glm4_moe_family() {
  return {.architecture = "Glm4MoeForCausalLM",
          .model_type = "glm4_moe",
          .fields = sigmoid_expert_fields({"first_k_dense_replace", "partial_rotary_factor", "use_qk_norm"}),
          .read = read_glm4_moe,
          .tensors = sigmoid_expert_tensors,
          .phases = layer_phases,
          .presets = {{"glm4.5-air", glm4_5_air_preset()}, {"glm4.5-355b", glm4_5_preset()}}};
}

}  // namespace megatrain
