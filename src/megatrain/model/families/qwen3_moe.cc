// Qwen 3 with experts: Qwen 3's attention. mlp_only_layers and decoder_sparse_step say which layers are dense.
#include <utility>

#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_qwen3_moe(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 4, .max_position = 32768}, c);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  c.qk_norm = true;
  c.rope = parse_rope(r, c.max_position);
  // transformers uses the window in all layers or in none
  c.window = r.boolean("use_sliding_window", false) ? read_window_of_all(r, c) : read_switched_window(r, c);
  read_experts(r, {.count = 128, .chosen = 8}, c);
  c.experts.ff = r.positive("moe_intermediate_size", 768, kMaxWidth);
  c.experts.layers = read_sparse_layers(r, c.layers);
  c.experts.score = r.boolean("norm_topk_prob", false) ? RouterScore::softmax_of_chosen : RouterScore::softmax_of_all;
}

std::vector<std::vector<TensorSpec>> qwen3_moe_tensors(const ModelConfig& c, int64_t layer) {
  if (!c.experts.in_layer(layer)) return dense_tensors(c, layer);
  return expert_tensors(
      c, layer,
      {.router = "mlp.gate", .experts = "mlp.experts", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"});
}

std::string qwen3_moe_unlike_llama_cpp(const ModelConfig& c) {
  if (c.o_bias) return "with attention_bias";
  if (c.experts.score != RouterScore::softmax_of_chosen) return "with norm_topk_prob: false";
  return unlike_all_experts(c);
}

Family::Preset qwen3_moe_preset(const char* name, int64_t expert_ff, const PresetSizes& sizes) {
  json config = preset_json("Qwen3MoeForCausalLM", "qwen3_moe", sizes);
  config.update({{"head_dim", 128},
                 {"max_position_embeddings", 40960},
                 {"num_experts", 128},
                 {"num_experts_per_tok", 8},
                 {"moe_intermediate_size", expert_ff},
                 {"norm_topk_prob", true},
                 {"decoder_sparse_step", 1},
                 {"mlp_only_layers", json::array()},
                 {"output_router_logits", false},
                 {"router_aux_loss_coef", 0.001}});
  return {name, std::move(config)};
}

}  // namespace

Family qwen3_moe_family() {
  return {
      .architecture = "Qwen3MoeForCausalLM",
      .model_type = "qwen3_moe",
      .fields = expert_fields({"moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"}),
      .read = read_qwen3_moe,
      .tensors = qwen3_moe_tensors,
      .phases = layer_phases,
      .llama_cpp = LlamaCpp{.name = "qwen3moe", .unlike = qwen3_moe_unlike_llama_cpp},
      .presets = {qwen3_moe_preset("qwen3-30b-a3b", 768, {2048, 6144, 48, 32, 4, 151936, false, 1e-6, 1e6}),
                  qwen3_moe_preset("qwen3-235b-a22b", 1536, {4096, 12288, 94, 64, 4, 151936, false, 1e-6, 1e6})}};
}

}  // namespace megatrain
