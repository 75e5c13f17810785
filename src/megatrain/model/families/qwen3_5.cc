// Qwen 3.5, 3.6 and 3.8, dense and with experts: three layers of four have a gated delta net instead of attention.
// Attention has an output gate and rotates a quarter of each head. Files store the weights of the norms minus one, but
// for the delta net's. With experts, every layer has them and a gated expert that all tokens share.
#include "megatrain/model/parts/delta_family.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_qwen3_5(const ConfigReader& r, ModelConfig& c) {
  read_delta_sizes(r, 4, {"mrope_section", "mrope_interleaved"}, c);
  must_be(r, "attn_output_gate", true, c.architecture);
  must_be(r, "mamba_ssm_dtype", "float32", c.architecture);
  if (r.has("output_gate_type") && r.at("output_gate_type") != "silu")  // another name of it
    must_be(r, "output_gate_type", "swish", c.architecture);
}

void read_qwen3_5_moe(const ConfigReader& r, ModelConfig& c) {
  constexpr int64_t kAbsent = 512;
  read_experts(r, {.count = 256, .chosen = 8}, c);
  c.experts.ff = r.positive("moe_intermediate_size", kAbsent, kMaxWidth);
  c.experts.shared_ff = r.positive("shared_expert_intermediate_size", kAbsent, kMaxWidth);
  c.experts.shared_gate = true;
  c.experts.score = RouterScore::softmax_of_chosen;
  if (r.has("mlp_only_layers")) must_be(r, "mlp_only_layers", json::array(), c.architecture);
  must_be(r, "decoder_sparse_step", 1, c.architecture);
  must_be(r, "norm_topk_prob", true, c.architecture);
}

void read_with_experts(const ConfigReader& r, ModelConfig& c) {
  json object = r.object();  // read_sizes() asks for the width of dense layers, of which there are none
  if (!r.has("intermediate_size")) object["intermediate_size"] = 1;
  read_qwen3_5(ConfigReader(object, r.where()), c);
  read_qwen3_5_moe(r, c);
}

std::vector<std::vector<TensorSpec>> qwen3_5_moe_tensors(const ModelConfig& c, int64_t layer) {
  return expert_tensors(c, layer,
                        {.router = "mlp.gate",
                         .experts = "mlp.experts",
                         .gate = "gate_proj",
                         .up = "up_proj",
                         .down = "down_proj",
                         .or_stacked = true,
                         .shared = "mlp.shared_expert",
                         .shared_gate = "mlp.shared_expert_gate"});
}

std::vector<std::string> qwen3_5_fields(std::vector<std::string> more) {
  // Those of predicted further tokens (mtp) concern tensors that are not trained.
  for (const char* field : {"attn_output_gate", "output_gate_type", "mamba_ssm_dtype", "mtp_num_hidden_layers",
                            "mtp_use_dedicated_embeddings"})
    more.emplace_back(field);
  return delta_fields(std::move(more));
}

Family::Preset qwen3_5_preset(const char* name, int64_t value_heads, const PresetSizes& sizes) {
  json config = preset_json("Qwen3_5ForCausalLM", "qwen3_5_text", sizes);
  config.erase("rope_theta");
  config.update(delta_preset(value_heads, sizes.rope_theta));
  return {name, std::move(config)};
}

Family::Preset qwen3_5_moe_preset() {
  Family::Preset preset = qwen3_5_preset("qwen3.6-35b-a3b", 32, {2048, 512, 40, 16, 2, 248320, false, 1e-6, 1e7});
  preset.config.erase("intermediate_size");
  preset.config.update({{"architectures", {"Qwen3_5MoeForCausalLM"}},
                        {"model_type", "qwen3_5_moe_text"},
                        {"num_experts", 256},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 512},
                        {"shared_expert_intermediate_size", 512},
                        {"output_router_logits", false},
                        {"router_aux_loss_coef", 0.001}});
  return preset;
}

}  // namespace

Family qwen3_5_family() {
  constexpr double kEps = 1e-6, kTheta = 1e7;
  return {.architecture = "Qwen3_5ForCausalLM",
          .model_type = "qwen3_5_text",
          .fields = qwen3_5_fields({}),
          .read = read_qwen3_5,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .presets = {qwen3_5_preset("qwen3.5-4b", 32, {2560, 9216, 32, 16, 4, 248320, true, kEps, kTheta}),
                      qwen3_5_preset("qwen3.5-9b", 32, {4096, 12288, 32, 16, 4, 248320, false, kEps, kTheta}),
                      qwen3_5_preset("qwen3.6-27b", 48, {5120, 17408, 64, 24, 4, 248320, false, kEps, kTheta})},
          .part_of = {{.architecture = "Qwen3_5ForConditionalGeneration",
                       .model_type = "qwen3_5",
                       .text_type = "qwen3_5_text",
                       .absent = {{"vocab_size", 248320},
                                  {"hidden_size", 4096},
                                  {"intermediate_size", 12288},
                                  {"num_hidden_layers", 32},
                                  {"num_attention_heads", 16}}}}};
}

Family qwen3_5_moe_family() {
  return {.architecture = "Qwen3_5MoeForCausalLM",
          .model_type = "qwen3_5_moe_text",
          .fields = qwen3_5_fields(expert_fields({"decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size",
                                                  "norm_topk_prob", "shared_expert_intermediate_size"})),
          .read = read_with_experts,
          .tensors = qwen3_5_moe_tensors,
          .phases = expert_phases,
          .peft_joins_experts = false,
          .presets = {qwen3_5_moe_preset()},
          .part_of = {{.architecture = "Qwen3_5MoeForConditionalGeneration",
                       .model_type = "qwen3_5_moe",
                       .text_type = "qwen3_5_moe_text",
                       .absent = {{"vocab_size", 248320},
                                  {"hidden_size", 2048},
                                  {"num_hidden_layers", 40},
                                  {"num_attention_heads", 16},
                                  {"num_key_value_heads", 2}}}}};
}

}  // namespace megatrain
