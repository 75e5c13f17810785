#include "megatrain/model/families/families.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

const std::vector<Family>& families() {
  static const std::vector<Family> all = {qwen2_family(),   llama_family(),   mistral_family(), qwen3_family(),
                                          phi3_family(),    gemma3_family(),  gemma4_family(),  qwen3_moe_family(),
                                          gpt_oss_family(), mixtral_family(), granite_family()};
  return all;
}

std::string attention_kind(const ModelConfig& config, int64_t layer) {
  return fmt::format("attention, window {}{}", config.window[static_cast<size_t>(layer)],
                     config.experts.in_layer(layer) ? ", experts" : "");
}

const Family& family_of(const ModelConfig& config) {
  for (const Family& family : families()) {
    if (family.architecture == config.architecture) return family;
  }
  fail_internal("no family of models is named '" + config.architecture + "'");
}

}  // namespace megatrain
