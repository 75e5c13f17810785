// MiniMax M2: experts with a sigmoid router in every layer, norms of queries and keys that span all heads, and RoPE on
// a part of each head.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Releases give the elements that rotate, transformers their part.
RopeConfig read_minimax_rope(const ConfigReader& r, const ModelConfig& c) {
  const double given = static_cast<double>(r.positive("rotary_dim", c.head_dim)) / static_cast<double>(c.head_dim);
  return parse_partial_rope(r, c, 5e6, given);
}

void read_minimax_m2(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .head_dim = 128, .max_position = 196608}, c);
  for (const char* key : {"attention_bias", "mlp_bias"}) must_be(r, key, false, c.architecture);
  must_be(r, "use_qk_norm", true, c.architecture);
  must_be(r, "qk_norm_type", "per_layer", c.architecture);
  must_be(r, "scoring_func", "sigmoid", c.architecture);
  must_be(r, "use_routing_bias", true, c.architecture);
  must_be(r, "shared_intermediate_size", 0, c.architecture);
  must_be(r, "router_jitter_noise", 0.0, c.architecture);
  if (r.has("attn_type_list") && r.at("attn_type_list") != json(std::vector<int>(static_cast<size_t>(c.layers), 1)))
    fail_input(fmt::format("{}: 'attn_type_list' is {}; it must have 1 (softmax attention) for each of the {} layers",
                           r.where(), r.at("attn_type_list").dump().substr(0, 80), c.layers));
  c.qk_norm = c.qk_norm_spans = true;
  c.rope = read_minimax_rope(r, c);
  c.window = read_no_window(r, c);
  read_experts(r, {.count = 256, .chosen = 8}, c);
  // Its load is balanced by the bias of its choice.
  must_be(r, "output_router_logits", false, c.architecture);
  c.experts.aux_coef = 0;
  c.experts.ff = c.ff;
  c.experts.score = RouterScore::sigmoid;
  c.experts.choice_bias = true;
}

std::vector<std::vector<TensorSpec>> minimax_tensors(const ModelConfig& c, int64_t layer) {
  return expert_tensors(c, layer,
                        {.router = "block_sparse_moe.gate",
                         .experts = "block_sparse_moe.experts",
                         .gate = "w1",
                         .up = "w3",
                         .down = "w2",
                         .choice_bias = "block_sparse_moe.e_score_correction_bias"});
}

}  // namespace

Family minimax_m2_family() {
  json preset = preset_json("MiniMaxM2ForCausalLM", "minimax_m2", {3072, 1536, 62, 48, 8, 200064, false, 1e-6, 5e6});
  preset.update({{"head_dim", 128},
                 {"max_position_embeddings", 196608},
                 {"rotary_dim", 64},
                 {"num_local_experts", 256},
                 {"num_experts_per_tok", 8}});
  return {.architecture = "MiniMaxM2ForCausalLM",
          .model_type = "minimax_m2",
          .fields = expert_fields({"attn_type_list", "mtp_transformer_layers", "num_mtp_modules",
                                   "partial_rotary_factor", "qk_norm_type", "rotary_dim", "router_jitter_noise",
                                   "scoring_func", "shared_intermediate_size", "use_qk_norm", "use_routing_bias"}),
          .read = read_minimax_m2,
          .tensors = minimax_tensors,
          .phases = expert_phases,
          .peft_joins_experts = false,
          .presets = {{"minimax-m2-230b-a10b", std::move(preset)}}};
}

}  // namespace megatrain
