// GLM 4.7 Flash: latent attention, dense first layers, and experts with a sigmoid router beside shared ones.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/latent_family.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Files of other versions have first_k_dense_replace instead, which must mean the same: transformers does not read it.
std::vector<bool> read_layers(const ConfigReader& r, int64_t layers) {
  const std::vector<bool> dense_first = read_dense_first(r, layers, 1);
  std::vector<bool> experts;
  for (int64_t l = 0; l < layers; ++l) experts.push_back(l > 0);
  if (r.has("mlp_layer_types")) {
    const json& types = r.at("mlp_layer_types");
    if (!types.is_array() || std::ssize(types) != layers)
      fail_input(fmt::format("{}: 'mlp_layer_types' must list one type for each of the {} layers", r.where(), layers));
    for (size_t l = 0; l < types.size(); ++l) {
      if (types[l] != json("dense") && types[l] != json("sparse"))
        fail_input(fmt::format("{}: mlp_layer_types[{}] is {}; supported are dense and sparse", r.where(), l,
                               types[l].dump()));
      experts[l] = types[l] == json("sparse");
    }
  }
  if (r.has("first_k_dense_replace") && dense_first != experts)
    fail_input(
        fmt::format("{}: 'first_k_dense_replace' is {}, but transformers takes the dense layers from "
                    "mlp_layer_types, and the first one without it; correct the wrong one",
                    r.where(), r.at("first_k_dense_replace").dump()));
  return experts;
}

void read_glm4_moe_lite(const ConfigReader& r, ModelConfig& c) {
  read_latent_sizes(
      r, {.q_rank = 768, .kv_rank = 512, .plain = 192, .turning = 64, .value = 256, .max_position = 202752}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  read_sigmoid_experts(r, {.count = 64, .chosen = 4, .ff = 1536, .groups = 1, .kept_groups = 1, .weight_scale = 1.8},
                       c);
  c.experts.layers = read_layers(r, c.layers);
}

json glm4_moe_lite_preset() {
  json config =
      preset_json("Glm4MoeLiteForCausalLM", "glm4_moe_lite", {2048, 10240, 47, 20, 20, 154880, false, 1e-5, 1e6});
  config.update({{"max_position_embeddings", 202752},
                 {"q_lora_rank", 768},
                 {"kv_lora_rank", 512},
                 {"qk_nope_head_dim", 192},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 256},
                 {"n_routed_experts", 64},
                 {"num_experts_per_tok", 4},
                 {"n_shared_experts", 1},
                 {"moe_intermediate_size", 1536},
                 {"routed_scaling_factor", 1.8},
                 {"norm_topk_prob", true},
                 {"n_group", 1},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1},
                 {"num_nextn_predict_layers", 1}});
  return config;
}

}  // namespace

Family glm4_moe_lite_family() {
  return {.architecture = "Glm4MoeLiteForCausalLM",
          .model_type = "glm4_moe_lite",
          .fields = sigmoid_expert_fields(latent_fields({"first_k_dense_replace", "mlp_layer_types"})),
          .read = read_glm4_moe_lite,
          .tensors = sigmoid_expert_tensors,
          .phases = layer_phases,
          .presets = {{"glm4.7-flash", glm4_moe_lite_preset()}}};
}

}  // namespace megatrain
