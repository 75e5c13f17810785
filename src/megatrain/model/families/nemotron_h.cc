// Nemotron-H, Nemotron Nano 2 and Nemotron 3 Nano: every layer is one of four things behind a norm: Mamba 2, attention
// without RoPE, an MLP, or experts with a sigmoid router beside shared ones. MLPs and experts square a ReLU instead of
// having a gate. Files name the modules "backbone.…".
#include <array>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/expert_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/mamba_family.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr const char *kPattern = "hybrid_override_pattern", *kTypes = "layers_block_type";

// A letter for each layer: M (Mamba), * (attention), - (MLP), E (experts). transformers 5 writes a list of names.
std::string read_pattern(const ConfigReader& r) {
  if (r.has(kTypes) || r.has("layer_types")) {
    const char* key = r.has(kTypes) ? kTypes : "layer_types";
    static const std::map<std::string, char> kLetters = {
        {"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
        {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
    std::string pattern;
    for (const json& type : r.at(key).is_array() ? r.at(key) : json::array({nullptr})) {
      const auto found = type.is_string() ? kLetters.find(type.get<std::string>()) : kLetters.end();
      if (found == kLetters.end())
        fail_input(fmt::format("{}: {}[{}] is {}; supported are linear_attention (Mamba), full_attention, mlp and moe",
                               r.where(), key, pattern.size(), type.dump()));
      pattern += found->second;
    }
    return pattern;
  }
  const std::string pattern = r.string(kPattern, "");
  if (pattern.empty() || pattern.find_first_not_of("M*-E") != std::string::npos)
    fail_input(
        fmt::format("{}: '{}' is '{}'; it must have a letter for each layer: M (Mamba), * (attention), - (MLP) or E "
                    "(experts)",
                    r.where(), kPattern, pattern));
  return pattern;
}

void check_numbers(const ConfigReader& r, const ModelConfig& c) {
  for (const char* key : {"attention_bias", "mlp_bias", "mamba_proj_bias", "residual_in_fp32"})
    must_be(r, key, false, c.architecture);
  for (const char* key : {"sliding_window", "moe_latent_size", "max_window_layers"})
    must_be(r, key, nullptr, c.architecture);
  must_be(r, "use_sliding_window", false, c.architecture);
  must_be(r, "hidden_dropout", 0.0, c.architecture);
  must_be(r, "mlp_hidden_act", "relu2", c.architecture);
  must_be(r, "mamba_hidden_act", "silu", c.architecture);
  must_be(r, "attention_head_dim", c.head_dim, c.architecture);
  must_be(r, "norm_eps", c.norm_eps, c.architecture);
}

void read_nemotron_mamba(const ConfigReader& r, ModelConfig& c) {
  Mamba2Config& m = c.mamba2;
  m.heads = r.positive("mamba_num_heads", 128);
  m.head_dim = r.positive("mamba_head_dim", 64);
  m.groups = r.positive("n_groups", 8);
  m.state_dim = r.positive("ssm_state_size", 128);
  m.taps = r.positive("conv_kernel", 4);
  m.bias = r.boolean("use_bias", false);
  m.conv_bias = r.boolean("use_conv_bias", true);
  m.least_step = r.number("time_step_min", 0.001);
  check_mamba(r, {"mamba_num_heads", "n_groups", "mamba_head_dim", "ssm_state_size", "conv_kernel"}, m);
  // transformers reads only time_step_min; other programs only this.
  Mamba2Config limits;
  read_step_limits(r, "time_step_limit", limits);
  if (m.least_step < 0 || limits.least_step > m.least_step || limits.most_step != Mamba2Config().most_step)
    fail_input(fmt::format("{}: 'time_step_limit' is {}, but {} takes 'time_step_min', {:g}, and no largest step",
                           r.where(), r.has("time_step_limit") ? r.at("time_step_limit").dump() : "missing",
                           c.architecture, m.least_step));
}

void read_nemotron(const ConfigReader& given, ModelConfig& c) {
  const std::string pattern = read_pattern(given);
  json object = given.object();
  if (given.has("num_hidden_layers") && given.positive("num_hidden_layers") != std::ssize(pattern))
    fail_input(fmt::format("{}: 'num_hidden_layers' is {}, but the list of layers has {}", given.where(),
                           given.at("num_hidden_layers").dump(), pattern.size()));
  object["num_hidden_layers"] = pattern.size();
  const ConfigReader r(object, given.where());
  read_sizes(r, {.kv_heads = 8, .head_dim = 128, .max_position = 4096}, c);
  c.norm_eps = r.positive_number("layer_norm_epsilon", 1e-5);
  c.pad_id = -1;  // its class gives the embedding no row without a gradient
  check_numbers(r, c);
  c.embedding_module = "model.embeddings";
  c.norm_module = "model.norm_f";
  c.activation = Activation::relu_squared;
  const auto layers = static_cast<size_t>(c.layers);
  c.no_rope.assign(layers, true);
  c.window.assign(layers, 0);
  for (const char kind : pattern) {
    c.mamba2.layers.push_back(kind == 'M');
    c.no_mixer.push_back(kind == '-' || kind == 'E');
  }
  if (pattern.find('M') != std::string::npos) {
    read_nemotron_mamba(r, c);
  } else {
    c.mamba2.layers.clear();
  }
  if (pattern.find('E') == std::string::npos) return;
  read_sigmoid_experts(r, {.count = 8, .chosen = 2, .ff = 7688, .groups = 1, .kept_groups = 1, .weight_scale = 1.0}, c);
  c.experts.shared_ff = r.positive("moe_shared_expert_intermediate_size", 7688, kMaxWidth);
  c.experts.gate.activation = Activation::relu_squared;
  for (const char kind : pattern) c.experts.layers.push_back(kind == 'E');
}

std::vector<std::vector<TensorSpec>> nemotron_tensors(const ModelConfig& c, int64_t layer) {
  static constexpr std::array<Renamed, 5> kNames = {{{"input_layernorm.", "norm."},
                                                     {"post_attention_layernorm.", "norm."},
                                                     {"self_attn.", "mixer."},
                                                     {"mamba.", "mixer."},
                                                     {"mlp.", "mixer."}}};
  std::vector<std::vector<TensorSpec>> lists;
  if (c.mixes(layer)) {
    lists = {attention_tensors(c, layer)};
    std::erase_if(lists.front(), [](const TensorSpec& tensor) { return tensor.operand == BlockOperand::post_norm; });
  } else if (c.experts.in_layer(layer)) {
    lists = expert_tensors(c, layer,
                           {.router = "mixer.gate",
                            .experts = "mixer.experts",
                            .up = "up_proj",
                            .down = "down_proj",
                            .parameter = "mixer.experts",
                            .shared = "mixer.shared_experts"});
  } else {
    lists = dense_tensors(c, layer);
  }
  rename_modules(layer, kNames, lists.front());
  return lists;
}

std::vector<std::unique_ptr<const Phase>> nemotron_phases(const ModelConfig& config, const ModelShape& shape,
                                                          int64_t layer, std::span<const LayerLayout> records) {
  if (!config.mixes(layer)) return layer_phases(config, shape, layer, records);
  const LinearTensors from(records.front(), adapters_among(records));
  return one_block(config, shape, from, attention_of(config, shape, layer, from), {});
}

json nemotron_preset(const PresetSizes& sizes, const char* pattern, const json& more) {
  json config = preset_json("NemotronHForCausalLM", "nemotron_h", sizes);
  for (const char* key : {"rms_norm_eps", "hidden_act", "rope_theta"}) config.erase(key);
  config.update({{"hybrid_override_pattern", pattern},
                 {"head_dim", 128},
                 {"max_position_embeddings", 262144},
                 {"layer_norm_epsilon", 1e-5},
                 {"mlp_hidden_act", "relu2"},
                 {"ssm_state_size", 128},
                 {"n_groups", 8},
                 {"conv_kernel", 4},
                 {"chunk_size", 128}});
  config.update(more);
  return config;
}

}  // namespace

Family nemotron_h_family() {
  constexpr double kEps = 1e-5, kTheta = 1e4;
  return {
      .architecture = "NemotronHForCausalLM",
      .model_type = "nemotron_h",
      .file_names = kBackboneNames,
      .fields = sigmoid_expert_fields({kPattern,
                                       kTypes,
                                       "attention_head_dim",
                                       "chunk_size",
                                       "conv_kernel",
                                       "expand",
                                       "hidden_dropout",
                                       "layer_norm_epsilon",
                                       "mamba_head_dim",
                                       "mamba_hidden_act",
                                       "mamba_num_heads",
                                       "mamba_proj_bias",
                                       "mamba_ssm_cache_dtype",
                                       "mlp_hidden_act",
                                       "moe_latent_size",
                                       "moe_shared_expert_intermediate_size",
                                       "moe_shared_expert_overlap",
                                       "mtp_hybrid_override_pattern",
                                       "mtp_layers_block_type",
                                       "n_groups",
                                       "norm_eps",
                                       "num_logits_to_keep",
                                       "rescale_prenorm_residual",
                                       "residual_in_fp32",
                                       "ssm_state_size",
                                       "time_step_floor",
                                       "time_step_limit",
                                       "time_step_max",
                                       "time_step_min",  // some are for the start alone
                                       "use_bias",
                                       "use_conv_bias",
                                       "use_mamba_kernels"}),
      .read = read_nemotron,
      .tensors = nemotron_tensors,
      .phases = nemotron_phases,
      .peft_joins_experts = false,
      .peft_refuses = "out_proj",
      .presets = {
          {"nemotron-3-nano-30b-a3b", nemotron_preset({2688, 1856, 52, 32, 2, 131072, false, kEps, kTheta},
                                                      "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
                                                      {{"mamba_num_heads", 64},
                                                       {"mamba_head_dim", 64},
                                                       {"n_routed_experts", 128},
                                                       {"num_experts_per_tok", 6},
                                                       {"moe_intermediate_size", 1856},
                                                       {"moe_shared_expert_intermediate_size", 3712},
                                                       {"routed_scaling_factor", 2.5}})},
          {"nemotron-nano-9b-v2",
           nemotron_preset({4480, 15680, 56, 40, 8, 131072, false, kEps, kTheta},
                           "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
                           {{"mamba_num_heads", 128}, {"mamba_head_dim", 80}, {"max_position_embeddings", 131072}})}}};
}

}  // namespace megatrain
