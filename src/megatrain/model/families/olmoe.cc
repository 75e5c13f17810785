// OLMoE: experts in every layer, and norms of queries and keys that span all heads.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_olmoe(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 4096}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  if (!r.object().contains("pad_token_id")) c.pad_id = 1;  // transformers' default
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  must_be(r, "clip_qkv", nullptr, c.architecture);
  c.qk_norm = c.qk_norm_spans = true;
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
  read_experts(r, {.count = 64, .chosen = 8}, c);
  c.experts.aux_coef = r.number("router_aux_loss_coef", 0.01);
  c.experts.ff = c.ff;
  c.experts.score = r.boolean("norm_topk_prob", false) ? RouterScore::softmax_of_chosen : RouterScore::softmax_of_all;
}

std::vector<std::vector<TensorSpec>> olmoe_tensors(const ModelConfig& c, int64_t layer) {
  return expert_tensors(
      c, layer,
      {.router = "mlp.gate", .experts = "mlp.experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"});
}

}  // namespace

Family olmoe_family() {
  json preset = preset_json("OlmoeForCausalLM", "olmoe", {2048, 1024, 16, 16, 16, 50304, false, 1e-5, 1e4});
  preset.update({{"max_position_embeddings", 4096},
                 {"pad_token_id", 1},
                 {"num_experts", 64},
                 {"num_experts_per_tok", 8},
                 {"norm_topk_prob", false},
                 {"router_aux_loss_coef", 0.01},
                 {"output_router_logits", false}});
  return {.architecture = "OlmoeForCausalLM",
          .model_type = "olmoe",
          .fields = expert_fields({"clip_qkv", "norm_topk_prob"}),
          .read = read_olmoe,
          .tensors = olmoe_tensors,
          .phases = expert_phases,
          .peft_joins_experts = false,
          .presets = {{"olmoe-1b-7b", std::move(preset)}}};
}

}  // namespace megatrain
