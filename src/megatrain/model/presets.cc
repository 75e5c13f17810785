#include "megatrain/model/presets.h"

#include <cstdint>

namespace megatrain {

namespace {

struct Preset {
  const char* name;
  const char* architecture;
  int64_t hidden, ff, layers, heads, kv_heads, vocab;
  bool tied;
  double theta;
};

constexpr Preset kPresets[] = {
    {"qwen2.5-0.5b", "Qwen2ForCausalLM", 896, 4864, 24, 14, 2, 151936, true, 1e6},
    {"qwen2.5-1.5b", "Qwen2ForCausalLM", 1536, 8960, 28, 12, 2, 151936, true, 1e6},
    {"qwen2.5-3b", "Qwen2ForCausalLM", 2048, 11008, 36, 16, 2, 151936, true, 1e6},
    {"qwen2.5-7b", "Qwen2ForCausalLM", 3584, 18944, 28, 28, 4, 152064, false, 1e6},
    {"qwen2.5-14b", "Qwen2ForCausalLM", 5120, 13824, 48, 40, 8, 152064, false, 1e6},
    {"qwen2.5-32b", "Qwen2ForCausalLM", 5120, 27648, 64, 40, 8, 152064, false, 1e6},
    {"qwen2.5-72b", "Qwen2ForCausalLM", 8192, 29568, 80, 64, 8, 152064, false, 1e6},
    {"llama3-8b", "LlamaForCausalLM", 4096, 14336, 32, 32, 8, 128256, false, 5e5},
    {"llama3-70b", "LlamaForCausalLM", 8192, 28672, 80, 64, 8, 128256, false, 5e5},
    {"120b", "LlamaForCausalLM", 10240, 32768, 94, 80, 8, 128256, false, 5e5},
};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

std::optional<nlohmann::json> preset_config(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    return nlohmann::json{{"architectures", {p.architecture}},
                          {"model_type", p.architecture[0] == 'Q' ? "qwen2" : "llama"},
                          {"vocab_size", p.vocab},
                          {"hidden_size", p.hidden},
                          {"intermediate_size", p.ff},
                          {"num_hidden_layers", p.layers},
                          {"num_attention_heads", p.heads},
                          {"num_key_value_heads", p.kv_heads},
                          {"hidden_act", "silu"},
                          {"max_position_embeddings", 32768},
                          {"rms_norm_eps", p.architecture[0] == 'Q' ? 1e-6 : 1e-5},
                          {"initializer_range", 0.02},
                          {"rope_theta", p.theta},
                          {"tie_word_embeddings", p.tied},
                          {"torch_dtype", "bfloat16"}};
  }
  return {};
}

}  // namespace megatrain
