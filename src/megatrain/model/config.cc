#include "megatrain/model/config.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"
#include "megatrain/model/config_reader.h"
#include "megatrain/model/family.h"
#include "megatrain/model/fp8_tensors.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/rope_config.h"

namespace megatrain {

namespace {

// Architectures with experts that are not supported, and why.
const std::map<std::string, std::string> kRefused = {
    {"DbrxForCausalLM", "its experts have no gate and its norms are layer norms"},
    {"DeepseekV2ForCausalLM", "its attention is latent (MLA)"},
    {"DeepseekV3ForCausalLM", "its attention is latent (MLA)"},
    {"DeepseekV32ForCausalLM", "its attention is latent (MLA) and sparse"},
    {"Ernie4_5_MoeForCausalLM", "it has shared experts (used by every token)"},
    {"Glm4MoeForCausalLM", "it has shared experts (used by every token) and a sigmoid router"},
    {"GlmMoeDsaForCausalLM", "its attention is latent (MLA) and sparse"},
    {"GraniteMoeForCausalLM", "it multiplies residuals and logits"},
    {"JambaForCausalLM", "it has state space layers"},
    {"KimiK2ForCausalLM", "its attention is latent (MLA)"},
    {"Llama4ForCausalLM", "it has shared experts (used by every token) and layers without RoPE"},
    {"Llama4ForConditionalGeneration", "it has shared experts (used by every token) and layers without RoPE"},
    {"MiniMaxForCausalLM", "most of its layers use linear attention"},
    {"MiniMaxM2ForCausalLM", "it has a sigmoid router with a bias"},
    {"OlmoeForCausalLM", "its norms of queries and keys span all heads"},
    {"PhimoeForCausalLM", "its router is SparseMixer"},
    {"Qwen2MoeForCausalLM", "it has a shared expert (used by every token)"},
    {"Qwen3NextForCausalLM", "most of its layers use linear attention"},
    {"Qwen3_5MoeForCausalLM", "most of its layers use linear attention"},
    {"Qwen3_5MoeForConditionalGeneration", "most of its layers use linear attention"},
};

// transformers selects the model by model_type and ignores architectures, so both must agree.
const Family& find_family(const ConfigReader& r) {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.architecture);
  std::sort(names.begin(), names.end());
  const std::string type = r.string("model_type", "");
  if (!r.has("architectures")) {
    for (const Family& family : families())
      if (type == family.model_type) return family;
  }
  if (!r.has("architectures") || !r.at("architectures").is_array() || r.at("architectures").size() != 1 ||
      !r.at("architectures")[0].is_string()) {
    fail_input(
        fmt::format("{}: 'architectures' must be a list with one name, such as [\"{}\"]", r.where(), names.front()));
  }
  const std::string name = r.at("architectures")[0].get<std::string>();
  const auto found = std::find_if(families().begin(), families().end(),
                                  [&](const Family& family) { return family.architecture == name; });
  if (found == families().end()) {
    const auto refused = kRefused.find(name);
    fail_input(fmt::format("{}: architecture '{}' is not supported{}; supported are {}", r.where(), name,
                           refused == kRefused.end() ? "" : ": " + refused->second, fmt::join(names, ", ")));
  }
  if (!type.empty() && type != found->model_type) {
    fail_input(
        fmt::format("{}: 'model_type' is '{}' and 'architectures' is [\"{}\"], whose model_type is '{}'; "
                    "transformers uses model_type: correct the wrong one",
                    r.where(), type, name, found->model_type));
  }
  return *found;
}

}  // namespace

ModelConfig ModelConfig::with_layers(const std::vector<int64_t>& kept) const {
  ModelConfig few = *this;
  few.layers = std::ssize(kept);
  few.window.clear();
  few.experts.layers.clear();
  for (const int64_t layer : kept) {
    few.window.push_back(window[static_cast<size_t>(layer)]);
    if (experts.count > 0) few.experts.layers.push_back(experts.in_layer(layer));
  }
  return few;
}

ModelConfig parse_model_config(const nlohmann::json& object, const std::string& where) {
  const ConfigReader reader(object, where);
  const Family& family = find_family(reader);
  check_known_fields(reader, family.fields);
  ModelConfig config;
  config.architecture = family.architecture;
  family.read(reader, config);
  if (!config.mxfp4_experts) config.fp8_exceptions = read_fp8_exceptions(reader);
  check_rope_is_finite(config.rope, config.full_head_dim(), where);
  if (config.window_rope) check_rope_is_finite(*config.window_rope, config.head_dim, where);
  return config;
}

}  // namespace megatrain
