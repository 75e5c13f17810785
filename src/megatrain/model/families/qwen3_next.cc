// Qwen3-Next: three layers of four have a gated delta net whose projections are stored by key head, the others
// attention with an output gate. Layers have experts and a gated expert that all tokens share, unless config.json says
// otherwise.
#include "megatrain/model/parts/delta_family.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_qwen3_next(const ConfigReader& reader, ModelConfig& c) {
  constexpr int64_t kAbsent = 512;
  json object = reader.object();
  if (!reader.has("intermediate_size")) object["intermediate_size"] = 5632;  // transformers' default
  const ConfigReader r(object, reader.where());
  read_delta_sizes(r, 2, {}, c);
  c.delta_net.by_key_head = true;
  read_experts(r, {.count = kAbsent, .chosen = 10}, c);
  c.experts.ff = r.positive("moe_intermediate_size", kAbsent, kMaxWidth);
  c.experts.shared_ff = r.positive("shared_expert_intermediate_size", kAbsent, kMaxWidth);
  c.experts.shared_gate = true;
  c.experts.layers = read_sparse_layers(r, c.layers);
  c.experts.score = r.boolean("norm_topk_prob", true) ? RouterScore::softmax_of_chosen : RouterScore::softmax_of_all;
}

std::vector<std::vector<TensorSpec>> qwen3_next_tensors(const ModelConfig& c, int64_t layer) {
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

json qwen3_next_preset() {
  constexpr double kTheta = 1e7;
  json config = preset_json("Qwen3NextForCausalLM", "qwen3_next", {2048, 5120, 48, 16, 2, 151936, false, 1e-6, kTheta});
  config.erase("rope_theta");
  config.update(delta_preset(32, kTheta));
  config.update({{"num_experts", 512},
                 {"num_experts_per_tok", 10},
                 {"moe_intermediate_size", 512},
                 {"shared_expert_intermediate_size", 512},
                 {"norm_topk_prob", true},
                 {"decoder_sparse_step", 1},
                 {"mlp_only_layers", json::array()},
                 {"output_router_logits", false},
                 {"router_aux_loss_coef", 0.001}});
  return config;
}

}  // namespace

Family qwen3_next_family() {
  return {.architecture = "Qwen3NextForCausalLM",
          .model_type = "qwen3_next",
          .fields = delta_fields(expert_fields({"decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size",
                                                "norm_topk_prob", "shared_expert_intermediate_size"})),
          .read = read_qwen3_next,
          .tensors = qwen3_next_tensors,
          .phases = layer_phases,
          .presets = {{"qwen3-next-80b-a3b", qwen3_next_preset()}}};
}

}  // namespace megatrain
