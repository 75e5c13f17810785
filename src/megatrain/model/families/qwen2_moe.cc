// Qwen 1.5 and 2 with experts: Qwen 2's attention, and beside the chosen experts one that every token has, with a gate.
#include <algorithm>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_qwen2_moe(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 16, .max_position = 32768}, c);
  c.qkv_bias = r.boolean("qkv_bias", true);
  must_be(r, "attention_bias", nullptr, c.architecture);
  must_be(r, "mlp_bias", nullptr, c.architecture);
  c.rope = parse_rope(r, c.max_position);
  // Without use_sliding_window, sliding_window and max_window_layers mean nothing; transformers writes 0 then.
  must_be(r, "use_sliding_window", false, c.architecture);
  const std::optional<std::vector<bool>> sliding = read_layer_types(r, c.layers);
  if (sliding && std::ranges::count(*sliding, true) > 0)
    fail_input(r.where() +
               ": 'layer_types' has sliding_attention, but use_sliding_window is false; correct one of them");
  c.window.assign(static_cast<size_t>(c.layers), 0);
  read_experts(r, {.count = 60, .chosen = 4}, c);
  c.experts.ff = r.positive("moe_intermediate_size", 1408, kMaxWidth);
  c.experts.shared_ff = r.positive("shared_expert_intermediate_size", 5632, kMaxWidth);
  c.experts.shared_gate = true;
  c.experts.layers = read_sparse_layers(r, c.layers);
  c.experts.score = r.boolean("norm_topk_prob", false) ? RouterScore::softmax_of_chosen : RouterScore::softmax_of_all;
}

std::vector<std::vector<TensorSpec>> qwen2_moe_tensors(const ModelConfig& c, int64_t layer) {
  if (!c.experts.in_layer(layer)) return dense_tensors(c, layer);
  return expert_tensors(c, layer,
                        {.router = "mlp.gate",
                         .experts = "mlp.experts",
                         .gate = "gate_proj",
                         .up = "up_proj",
                         .down = "down_proj",
                         .shared = "mlp.shared_expert",
                         .shared_gate = "mlp.shared_expert_gate"});
}

std::string qwen2_moe_unlike_llama_cpp(const ModelConfig& c) {
  if (!c.qkv_bias) return "without qkv_bias";
  if (c.experts.score != RouterScore::softmax_of_all) return "with norm_topk_prob: true";
  return unlike_all_experts(c);
}

std::vector<LlamaCpp::Key> qwen2_moe_llama_cpp_keys(const ModelConfig& c) {
  return {{"expert_shared_feed_forward_length", c.experts.shared_ff}};
}

json qwen2_moe_preset() {
  json config = preset_json("Qwen2MoeForCausalLM", "qwen2_moe", {2048, 5632, 24, 16, 16, 151936, false, 1e-6, 1e6});
  config.update({{"max_position_embeddings", 8192},
                 {"num_experts", 60},
                 {"num_experts_per_tok", 4},
                 {"moe_intermediate_size", 1408},
                 {"shared_expert_intermediate_size", 5632},
                 {"norm_topk_prob", false},
                 {"decoder_sparse_step", 1},
                 {"output_router_logits", false},
                 {"router_aux_loss_coef", 0.001}});
  return config;
}

}  // namespace

Family qwen2_moe_family() {
  return {.architecture = "Qwen2MoeForCausalLM",
          .model_type = "qwen2_moe",
          .fields = expert_fields({"decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size", "norm_topk_prob",
                                   "qkv_bias", "shared_expert_intermediate_size"}),
          .read = read_qwen2_moe,
          .tensors = qwen2_moe_tensors,
          .phases = layer_phases,
          .llama_cpp = LlamaCpp{.name = "qwen2moe",
                                .unlike = qwen2_moe_unlike_llama_cpp,
                                .keys = qwen2_moe_llama_cpp_keys,
                                .tensors = {{"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
                                            {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
                                            {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
                                            {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"}}},
          .peft_joins_experts = false,
          .presets = {{"qwen1.5-moe-a2.7b", qwen2_moe_preset()}}};
}

}  // namespace megatrain
