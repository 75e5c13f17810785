// Granite 4 and 4 H, dense and with experts: most layers have Mamba 2 instead of attention, which has no RoPE. Granite
// 3's four multipliers. Every layer has an MLP that all tokens share.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/mamba_family.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_granite4_mamba(const ConfigReader& r, ModelConfig& c) {
  const std::optional<std::vector<bool>> layers = read_mamba_layers(r, "layer_types", c.layers);
  std::vector<bool> mamba = layers.value_or(std::vector<bool>(static_cast<size_t>(c.layers), true));
  if (std::ranges::count(mamba, true) == 0) return;
  read_mamba_sizes(r, r.positive("mamba_expand", 2, 64) * c.hidden, "mamba_expand * hidden_size", c.mamba2);
  c.mamba2.layers = std::move(mamba);
}

void read_granite4_rope(const ConfigReader& r, ModelConfig& c) {
  const std::string type = r.string("position_embedding_type", "nope");
  if (type == "rope") {
    c.rope = parse_rope(r, c.max_position);
    return;
  }
  must_be(r, "position_embedding_type", "nope", c.architecture);
  c.no_rope.assign(static_cast<size_t>(c.layers), true);
}

void read_granite4(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 2048}, c);
  for (const char* key : {"mlp_bias", "use_sliding_window"}) must_be(r, key, false, c.architecture);
  for (const char* key : {"sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  must_be(r, "normalization_function", "rmsnorm", c.architecture);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  read_multipliers(r, c);
  read_granite4_rope(r, c);
  c.window.assign(static_cast<size_t>(c.layers), 0);
  read_granite4_mamba(r, c);
  if (c.branch_scale != 1 && (c.o_bias || c.mamba2.bias))
    fail_input(fmt::format("{}: 'residual_multiplier' is {:g} and '{}' is true; megatrain supports one or the other",
                           r.where(), c.branch_scale, c.o_bias ? "attention_bias" : "mamba_proj_bias"));
  const int64_t width_of_expert = c.ff;
  c.ff = r.positive("shared_intermediate_size", 1024, kMaxWidth);
  if (r.not_negative("num_local_experts", 8) == 0) {
    must_be(r, "output_router_logits", false, c.architecture);
    return;
  }
  read_experts(r, {.count = 8, .chosen = 2}, c);
  c.experts.ff = width_of_expert;
  c.experts.shared_ff = c.ff;
  c.experts.score = RouterScore::softmax_of_chosen;
  c.experts.weight_scale = c.branch_scale;
}

std::vector<std::vector<TensorSpec>> granite4_tensors(const ModelConfig& c, int64_t layer) {
  constexpr const char *kGateUp = "shared_mlp.input_linear", *kDown = "shared_mlp.output_linear";
  if (c.experts.in_layer(layer))
    return expert_tensors(c, layer,
                          {.router = "block_sparse_moe.router.layer",
                           .experts = "block_sparse_moe.experts",
                           .gate = "gate_proj",
                           .up = "up_proj",
                           .down = "down_proj",
                           .stored_gate_up = "block_sparse_moe.input_linear.weight",
                           .stored_down = "block_sparse_moe.output_linear.weight",
                           .parameter = "block_sparse_moe.experts",
                           .shared_gate_up = kGateUp,
                           .shared_down = kDown});
  std::vector<TensorSpec> tensors = attention_tensors(c, layer);
  const auto weight = [&](int operand, const char* module, int64_t rows, int64_t cols) {
    tensors.push_back({.name = fmt::format("model.layers.{}.{}.weight", layer, module),
                       .rows = rows,
                       .cols = cols,
                       .operand = operand});
  };
  weight(BlockOperand::gate_up, kGateUp, 2 * c.ff, c.hidden);
  weight(BlockOperand::down, kDown, c.hidden, c.ff);
  return {std::move(tensors)};
}

struct Granite4Sizes {
  const char* name;
  PresetSizes sizes;
  int64_t heads, shared, experts, chosen;
  double attention_multiplier, logits_scaling;
};

Family::Preset granite4_preset(const Granite4Sizes& p) {
  json config = preset_json("GraniteMoeHybridForCausalLM", "granitemoehybrid", p.sizes), types = json::array();
  for (int64_t layer = 0; layer < p.sizes.layers; ++layer) types.push_back(layer % 10 == 5 ? "attention" : "mamba");
  config.update({{"max_position_embeddings", 131072},
                 {"initializer_range", 0.1},
                 {"layer_types", std::move(types)},
                 {"position_embedding_type", "nope"},
                 {"mamba_n_heads", p.heads},
                 {"mamba_n_groups", 1},
                 {"mamba_d_head", 64},
                 {"mamba_d_state", 128},
                 {"mamba_d_conv", 4},
                 {"mamba_expand", 2},
                 {"mamba_chunk_size", 256},
                 {"mamba_conv_bias", true},
                 {"mamba_proj_bias", false},
                 {"shared_intermediate_size", p.shared},
                 {"num_local_experts", p.experts},
                 {"num_experts_per_tok", p.chosen},
                 {"output_router_logits", false},
                 {"router_aux_loss_coef", 0.0},
                 {"embedding_multiplier", 12},
                 {"attention_multiplier", p.attention_multiplier},
                 {"residual_multiplier", 0.22},
                 {"logits_scaling", p.logits_scaling}});
  return {p.name, std::move(config)};
}

}  // namespace

Family granite4_family() {
  constexpr double kEps = 1e-5, kTheta = 1e4;
  return {.architecture = "GraniteMoeHybridForCausalLM",
          .model_type = "granitemoehybrid",
          .fields = mamba_fields({"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                  "logits_scaling", "normalization_function", "position_embedding_type", "init_method",
                                  "shared_intermediate_size", "num_local_experts", "num_experts_per_tok",
                                  "output_router_logits", "router_aux_loss_coef"}),
          .read = read_granite4,
          .tensors = granite4_tensors,
          .phases = layer_phases,
          .presets = {granite4_preset({.name = "granite-4.0-h-micro",
                                       .sizes = {2048, 8192, 40, 32, 8, 100352, true, kEps, kTheta},
                                       .heads = 64,
                                       .shared = 8192,
                                       .experts = 0,
                                       .chosen = 0,
                                       .attention_multiplier = 0.015625,
                                       .logits_scaling = 8}),
                      granite4_preset({.name = "granite-4.0-h-tiny",
                                       .sizes = {1536, 512, 40, 12, 4, 100352, true, kEps, kTheta},
                                       .heads = 48,
                                       .shared = 1024,
                                       .experts = 64,
                                       .chosen = 6,
                                       .attention_multiplier = 0.0078125,
                                       .logits_scaling = 6}),
                      granite4_preset({.name = "granite-4.0-h-small",
                                       .sizes = {4096, 768, 40, 32, 8, 100352, true, kEps, kTheta},
                                       .heads = 128,
                                       .shared = 1536,
                                       .experts = 72,
                                       .chosen = 10,
                                       .attention_multiplier = 0.0078125,
                                       .logits_scaling = 16})}};
}

}  // namespace megatrain
