#include "megatrain/model/families/families.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      qwen2_family(),       llama_family(),      mistral_family(),       qwen3_family(),          phi3_family(),
      gemma3_family(),      qwen3_moe_family(),  gpt_oss_family(),       mixtral_family(),        granite_family(),
      qwen2_moe_family(),   glm4_moe_family(),   glm4_moe_lite_family(), deepseek_v3_family(),    qwen3_5_family(),
      qwen3_5_moe_family(), qwen3_next_family(), olmo2_family(),         olmo3_family(),          smollm3_family(),
      seed_oss_family(),    ministral3_family(), mistral4_family(),      glm4_family(),           glm_family(),
      exaone4_family(),     gemma2_family(),     gemma4_family(),        gemma4_unified_family(), granite4_family(),
      nemotron_h_family(),  falcon_h1_family(),  cohere_family(),        cohere2_family(),        minimax_m2_family(),
      lfm2_family(),        gemma_family(),      arcee_family(),         ernie4_5_family(),       olmoe_family()};
  return all;
}

std::string attention_kind(const ModelConfig& config, int64_t layer) {
  const char* experts = config.experts.in_layer(layer) ? ", experts" : "";
  if (config.delta_net.in_layer(layer)) return fmt::format("delta net{}", experts);
  if (!config.mixes(layer)) return config.experts.in_layer(layer) ? "experts" : "mlp";
  if (config.gated_conv.in_layer(layer)) return fmt::format("gated convolution{}", experts);
  if (config.mamba2.in_layer(layer))
    return fmt::format("mamba 2{}{}", config.mamba2.beside_attention ? " and attention" : "", experts);
  return fmt::format("attention, window {}{}{}", config.window[static_cast<size_t>(layer)],
                     config.rotates(layer) ? "" : ", no RoPE", experts);
}

bool has_model_type(const Family& family, const std::string& type) {
  return type == family.model_type || std::ranges::count(family.other_types, type) > 0;
}

const Family& family_of(const ModelConfig& config) {
  for (const Family& family : families()) {
    if (family.architecture == config.architecture) return family;
  }
  fail_internal("no family of models is named '" + config.architecture + "'");
}

}  // namespace megatrain
