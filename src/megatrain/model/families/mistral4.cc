// Mistral Small 4: latent attention with YaRN, queries that grow with the position beyond the original context, and
// experts with a softmax router beside shared ones. Files have all experts of a layer in two tensors.
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/latent_family.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

// transformers' rope_parameters if config.json has none.
json absent_mistral4_rope() {
  return {{"rope_type", "yarn"}, {"rope_theta", 10000.0}, {"factor", 128.0},
          {"beta_fast", 32.0},   {"beta_slow", 1.0},      {"original_max_position_embeddings", 8192},
          {"mscale", 1.0},       {"mscale_all_dim", 1.0}, {"llama_4_scaling_beta", 0.1}};
}

// Without the part of a head that is rotated, which the head's sizes say too.
json read_rope_parameters(const ConfigReader& r, const LatentConfig& l) {
  constexpr const char* kPart = "partial_rotary_factor";
  json parameters = r.has("rope_parameters") ? r.at("rope_parameters") : absent_mistral4_rope();
  const int64_t head = l.plain + l.turning;
  const double own = static_cast<double>(l.turning) / static_cast<double>(head);
  const ConfigReader p(parameters, r.where() + ": rope_parameters");
  if (p.string("rope_type", p.string("type", "default")) != "yarn")
    fail_input(p.where() + ": 'rope_type' must be yarn; Mistral4ForCausalLM has no other");
  const double part = p.positive_number(kPart, own);
  if (std::llround(static_cast<double>(head) * part) != l.turning)
    fail_input(fmt::format("{}: '{}' is {}, but qk_rope_head_dim says that {} of a head's {} elements are rotated",
                           r.where(), kPart, part, l.turning, head));
  parameters.erase(kPart);
  return parameters;
}

void read_attention(const ConfigReader& r, ModelConfig& c) {
  for (const char* key : {"rope_scaling", "layer_types"}) must_be(r, key, nullptr, c.architecture);
  json object = r.object();
  object.erase("rope_parameters");
  if (const int64_t head = r.positive("qk_nope_head_dim", 64) + r.positive("qk_rope_head_dim", 64);
      r.positive("head_dim", head) != head)
    fail_input(fmt::format("{}: 'head_dim' is {}, but a head has {} elements; correct the wrong one", r.where(),
                           r.at("head_dim").dump(), head));
  read_latent_sizes(ConfigReader(object, r.where()),
                    {.q_rank = 1024, .kv_rank = 256, .plain = 64, .turning = 64, .value = 128, .max_position = 1048576},
                    c);
  object["rope_parameters"] = read_rope_parameters(r, c.latent);
  const ConfigReader with_rope(object, r.where());
  set_latent_rope(with_rope, parse_growing_rope(with_rope, object.at("rope_parameters"), c), c);
}

void read_mistral4(const ConfigReader& r, ModelConfig& c) {
  read_attention(r, c);
  if (!r.object().contains("pad_token_id")) c.pad_id = 11;  // transformers' default
  json object = r.object();
  object.erase("norm_topk_prob");  // may be false here
  for (const char* key : {"n_group", "topk_group"}) must_be(r, key, 1, c.architecture);
  read_sigmoid_experts(ConfigReader(object, r.where()),
                       {.count = 128, .chosen = 4, .ff = 2048, .groups = 1, .kept_groups = 1, .weight_scale = 1}, c);
  c.experts.choice_bias = false;
  c.experts.score = r.boolean("norm_topk_prob", true) ? RouterScore::softmax_of_chosen : RouterScore::softmax_of_all;
  c.experts.layers = read_dense_first(r, c.layers, 0);
}

std::vector<std::vector<TensorSpec>> mistral4_tensors(const ModelConfig& c, int64_t layer) {
  if (!c.experts.in_layer(layer)) return dense_tensors(c, layer);
  return expert_tensors(c, layer,
                        {.router = "mlp.gate",
                         .experts = "mlp.experts",
                         .gate = "gate_proj",
                         .up = "up_proj",
                         .down = "down_proj",
                         .stacked = true,
                         .shared = "mlp.shared_experts"});
}

json mistral4_preset() {
  json config = preset_json("Mistral4ForCausalLM", "mistral4", {4096, 12288, 36, 32, 32, 131072, false, 1e-6, 1e4});
  config.erase("rope_theta");
  config.update({{"max_position_embeddings", 1048576},
                 {"q_lora_rank", 1024},
                 {"kv_lora_rank", 256},
                 {"qk_nope_head_dim", 64},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 128},
                 {"n_routed_experts", 128},
                 {"num_experts_per_tok", 4},
                 {"n_shared_experts", 1},
                 {"moe_intermediate_size", 2048},
                 {"first_k_dense_replace", 0},
                 {"rope_parameters", absent_mistral4_rope()}});
  return config;
}

}  // namespace

Family mistral4_family() {
  return {.architecture = "Mistral4ForCausalLM",
          .model_type = "mistral4",
          .fields = sigmoid_expert_fields(latent_fields({"first_k_dense_replace"})),
          .read = read_mistral4,
          .tensors = mistral4_tensors,
          .phases = layer_phases,
          .presets = {{"mistral-small-4-119b", mistral4_preset()}},
          .part_of = {{.architecture = "Mistral3ForConditionalGeneration",
                       .model_type = "mistral3",
                       .text_type = "mistral4",
                       .absent = {{"vocab_size", 131072},
                                  {"hidden_size", 4096},
                                  {"intermediate_size", 12288},
                                  {"num_hidden_layers", 36},
                                  {"num_attention_heads", 32}}}}};
}

}  // namespace megatrain
