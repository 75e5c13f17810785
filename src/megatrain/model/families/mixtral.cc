// Mixtral: Mistral with experts in every layer. No sliding window unless sliding_window is given.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

void read_mixtral(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .null_kv_heads = false, .max_position = 131072}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  must_be(r, "attention_bias", false, c.architecture);
  must_be(r, "mlp_bias", false, c.architecture);
  if (r.number("router_jitter_noise", 0) != 0)
    fail_input(fmt::format("{}: 'router_jitter_noise' is {}; megatrain routes without noise: set it to 0", r.where(),
                           r.at("router_jitter_noise").dump()));
  c.rope = parse_rope(r, c.max_position, 1e6);
  c.window = r.has("sliding_window") ? read_window_of_all(r, c) : read_no_window(r, c);
  read_experts(r, {.count = 8, .chosen = 2}, c);
  c.experts.ff = c.ff;
}

std::vector<std::vector<TensorSpec>> mixtral_tensors(const ModelConfig& c, int64_t layer) {
  return expert_tensors(c, layer,
                        {.router = "block_sparse_moe.gate",
                         .experts = "block_sparse_moe.experts",
                         .gate = "w1",
                         .up = "w3",
                         .down = "w2"});
}

Family::Preset mixtral_preset(const char* name, const PresetSizes& sizes) {
  nlohmann::json config = preset_json("MixtralForCausalLM", "mixtral", sizes);
  config.update({{"num_local_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"output_router_logits", false},
                 {"router_aux_loss_coef", 0.02}});
  return {name, std::move(config)};
}

}  // namespace

Family mixtral_family() {
  return {.architecture = "MixtralForCausalLM",
          .model_type = "mixtral",
          .fields = expert_fields({"router_jitter_noise"}),
          .read = read_mixtral,
          .tensors = mixtral_tensors,
          .phases = expert_phases,
          .llama_cpp = LlamaCpp{.name = "llama", .is_llama = true},
          .presets = {mixtral_preset("mixtral-8x7b", {4096, 14336, 32, 32, 8, 32000, false, 1e-5, 1e6}),
                      mixtral_preset("mixtral-8x22b", {6144, 16384, 56, 48, 8, 32768, false, 1e-5, 1e6})}};
}

}  // namespace megatrain
