// gpt-oss: sinks, biases everywhere, a sliding window in every second layer, YaRN, and experts with a clamped gate.
// Files store all experts of a layer in one tensor, in bf16 or MXFP4.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

// What transformers assumes if both RoPE fields are absent.
json absent_scaling() {
  return {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
          {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
}

RopeConfig read_gpt_oss_rope(const ConfigReader& r, int64_t max_position) {
  constexpr double kTheta = 150000;
  if (r.has("rope_scaling") || r.has("rope_parameters")) return parse_rope(r, max_position, kTheta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (r.object().contains(key))
      fail_input(fmt::format(
          "{}: '{}' is null; transformers versions disagree on whether RoPE is then scaled: remove the field for "
          "gpt-oss's own scaling, or write {{\"rope_type\": \"default\"}} for none",
          r.where(), key));
  }
  json object = r.object();
  object["rope_scaling"] = absent_scaling();
  return parse_rope(ConfigReader(object, r.where()), max_position, kTheta);
}

std::vector<int64_t> read_window(const ConfigReader& r, int64_t layers) {
  std::vector<bool> sliding;
  for (int64_t l = 0; l < layers; ++l) sliding.push_back(l % 2 == 0);
  sliding = read_layer_types(r, layers).value_or(sliding);
  const bool none = r.object().contains("sliding_window") && !r.has("sliding_window");
  const int64_t size = r.positive("sliding_window", 128);
  std::vector<int64_t> window;
  for (const bool has : sliding) {
    if (has && none)
      fail_input(r.where() + ": 'sliding_window' is null, but some layers have one; give its size in tokens");
    window.push_back(has ? size : 0);
  }
  return window;
}

// Whether config.json says that the experts are stored in MXFP4. If there are weights, their tensor names decide
// instead.
bool says_mxfp4(const ConfigReader& r) {
  constexpr const char* kField = "quantization_config";
  if (!r.has(kField)) return false;
  const ConfigReader q(r.at(kField), fmt::format("{}: {}", r.where(), kField));
  check_fields_of(q, {"quant_method", "modules_to_not_convert", "dequantize"});
  if (q.string("quant_method", "") != "mxfp4")
    fail_input(fmt::format("{}: 'quant_method' is {}; only mxfp4 is read, or weights that are not quantised", q.where(),
                           q.has("quant_method") ? q.at("quant_method").dump() : "missing"));
  return true;
}

void read_gpt_oss(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .null_kv_heads = false, .head_dim = 64, .max_position = 131072}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", true);
  must_be(r, "mlp_bias", nullptr, c.architecture);
  for (const char* key : {"use_sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  c.sinks = true;
  c.rope = read_gpt_oss_rope(r, c.max_position);
  c.window = read_window(r, c.layers);

  read_experts(r, {.count = 128, .chosen = 4}, c);
  c.mxfp4_experts = says_mxfp4(r);
  if (r.positive("experts_per_token", c.experts.chosen) != c.experts.chosen)
    fail_input(
        fmt::format("{}: 'experts_per_token' is {} and 'num_experts_per_tok' is {}; transformers uses the second: "
                    "correct the wrong one",
                    r.where(), r.at("experts_per_token").dump(), c.experts.chosen));
  if (const auto original = static_cast<int64_t>(c.rope.original_max_position);
      original > 0 && r.positive("initial_context_length", original) != original)
    fail_input(
        fmt::format("{}: 'initial_context_length' is {} and RoPE's original_max_position_embeddings {}; transformers "
                    "uses the second: correct the wrong one",
                    r.where(), r.at("initial_context_length").dump(), original));
  if (r.number("swiglu_alpha", 1.702) != 1.702)
    fail_input(fmt::format("{}: 'swiglu_alpha' is {}; megatrain supports only 1.702 here", r.where(),
                           r.at("swiglu_alpha").dump()));
  c.experts.ff = c.ff;
  c.experts.router_bias = c.experts.bias = true;
  c.experts.gate = {.activation = Activation::gelu_sigmoid,
                    .limit = static_cast<float>(r.positive_number("swiglu_limit", 7)),
                    .up_offset = 1};
}

std::vector<std::vector<TensorSpec>> gpt_oss_tensors(const ModelConfig& c, int64_t layer) {
  return expert_tensors(c, layer,
                        {.router = "mlp.router",
                         .experts = "mlp.experts",
                         .gate = "gate_proj",
                         .up = "up_proj",
                         .down = "down_proj",
                         .fused = true});
}

std::string gpt_oss_unlike_llama_cpp(const ModelConfig& c) {
  constexpr double kLimit = 7;  // hard-coded in llama.cpp
  if (c.tied) return "with a head that is the embedding (tie_word_embeddings)";
  if (!c.qkv_bias) return "without attention_bias";
  if (c.experts.gate.limit != static_cast<float>(kLimit))
    return fmt::format("with a swiglu_limit of {:g} (llama.cpp takes {:g})", c.experts.gate.limit, kLimit);
  if (!windows_repeat(c, 2)) return "with other layer_types than sliding_attention in every second layer";
  return "";
}

std::vector<LlamaCpp::Key> gpt_oss_llama_cpp_keys(const ModelConfig& c) {
  return {{"attention.sliding_window", c.longest_window()}};
}

Family::Preset gpt_oss_preset(const char* name, int64_t layers, int64_t experts) {
  json config = preset_json("GptOssForCausalLM", "gpt_oss", {2880, 2880, layers, 64, 8, 201088, false, 1e-5, 150000});
  config.update({{"head_dim", 64},
                 {"attention_bias", true},
                 {"max_position_embeddings", 131072},
                 {"num_local_experts", experts},
                 {"num_experts_per_tok", 4},
                 {"sliding_window", 128},
                 {"swiglu_limit", 7.0},
                 {"quantization_config", {{"quant_method", "mxfp4"}}},
                 {"rope_scaling", absent_scaling()},
                 {"output_router_logits", false},
                 {"router_aux_loss_coef", 0.9}});
  return {name, config};
}

}  // namespace

Family gpt_oss_family() {
  return {.architecture = "GptOssForCausalLM",
          .model_type = "gpt_oss",
          .fields = expert_fields(
              {"experts_per_token", "initial_context_length", "quantization_config", "swiglu_alpha", "swiglu_limit"}),
          .read = read_gpt_oss,
          .tensors = gpt_oss_tensors,
          .phases = expert_phases,
          .llama_cpp = LlamaCpp{.name = "gpt-oss",
                                .has_windows = true,
                                .unlike = gpt_oss_unlike_llama_cpp,
                                .keys = gpt_oss_llama_cpp_keys,
                                .tensors = {{"post_attention_layernorm.weight", "post_attention_norm.weight"}}},
          .presets = {gpt_oss_preset("gpt-oss-20b", 24, 32), gpt_oss_preset("gpt-oss-120b", 36, 128)}};
}

}  // namespace megatrain
