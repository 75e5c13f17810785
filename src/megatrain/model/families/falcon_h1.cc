// Falcon-H1: in every layer Mamba 2 and attention side by side, which read the same input, and multipliers of nearly
// every matmul.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/mamba_family.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

// A list of positive numbers; ones if it is absent.
template <size_t kCount>
std::array<double, kCount> read_list(const ConfigReader& r, const char* key) {
  std::array<double, kCount> numbers;
  numbers.fill(1);
  if (!r.has(key)) return numbers;
  const json& list = r.at(key);
  const auto positive = [](const json& number) { return number.is_number() && number > 0; };
  if (!list.is_array() || list.size() != kCount || !std::all_of(list.begin(), list.end(), positive))
    fail_input(fmt::format("{}: '{}' is {}; it must list {} positive numbers", r.where(), key, list.dump(), kCount));
  for (size_t i = 0; i < kCount; ++i) numbers[i] = list[i].get<double>();
  return numbers;
}

// Factors that meet in one matmul, or on both sides of one that is linear, are one.
void read_falcon_multipliers(const ConfigReader& r, ModelConfig& c) {
  const double in = r.positive_number("attention_in_multiplier", 1);
  c.attention_scale = in * in * r.positive_number("key_multiplier", 1) / std::sqrt(static_cast<double>(c.head_dim));
  c.scales.attention_out = in * r.positive_number("attention_out_multiplier", 1);
  c.mamba2.scales = read_list<5>(r, "ssm_multipliers");
  for (double& scale : c.mamba2.scales) scale *= r.positive_number("ssm_in_multiplier", 1);
  c.scales.mamba_out = r.positive_number("ssm_out_multiplier", 1);
  const auto [gate, down] = read_list<2>(r, "mlp_multipliers");
  c.scales.mlp_in = gate;  // `up` has it too, and `down` takes it back
  c.scales.mlp_out = down / gate;
  c.embedding_scale = r.positive_number("embedding_multiplier", 1);
  c.logits_scale = r.positive_number("lm_head_multiplier", 1);
}

void read_falcon_h1(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .max_position = 8192}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  c.norm_module = "model.final_layernorm";
  for (const char* key : {"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"})
    must_be(r, key, false, c.architecture);
  must_be(r, "attn_layer_indices", nullptr, c.architecture);
  must_be(r, "mamba_use_mlp", true, c.architecture);
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
  const bool null_width = r.object().contains("mamba_d_ssm") && !r.has("mamba_d_ssm");
  const int64_t width =
      null_width ? r.positive("mamba_expand", 2, 64) * c.hidden : r.positive("mamba_d_ssm", 1024, kMaxWidth);
  read_mamba_sizes(r, width, null_width ? "mamba_expand * hidden_size" : "mamba_d_ssm", c.mamba2);
  c.mamba2.layers.assign(static_cast<size_t>(c.layers), true);
  c.mamba2.beside_attention = true;
  c.mamba2.normed = r.boolean("mamba_rms_norm", false);
  c.mamba2.gate_first = !r.boolean("mamba_norm_before_gate", true) || !c.mamba2.normed;
  read_falcon_multipliers(r, c);
}

std::vector<std::vector<TensorSpec>> falcon_tensors(const ModelConfig& c, int64_t layer) {
  static constexpr std::array<Renamed, 2> kNames = {
      {{"post_attention_layernorm.", "pre_ff_layernorm."}, {"mlp.", "feed_forward."}}};
  std::vector<std::vector<TensorSpec>> lists = dense_tensors(c, layer);
  rename_modules(layer, kNames, lists.front());
  return lists;
}

Family::Preset falcon_preset(const char* name, const PresetSizes& sizes, const json& more) {
  json config = preset_json("FalconH1ForCausalLM", "falcon_h1", sizes);
  config.update({{"mamba_n_groups", 1},
                 {"mamba_d_head", 64},
                 {"mamba_d_conv", 4},
                 {"mamba_rms_norm", false},
                 {"mamba_norm_before_gate", false}});
  config.update(more);
  return {name, std::move(config)};
}

}  // namespace

Family falcon_h1_family() {
  return {.architecture = "FalconH1ForCausalLM",
          .model_type = "falcon_h1",
          .fields = mamba_fields({"attention_in_multiplier", "attention_out_multiplier", "attn_layer_indices",
                                  "embedding_multiplier", "key_multiplier", "lm_head_multiplier", "mamba_d_ssm",
                                  "mamba_norm_before_gate", "mamba_rms_norm", "mamba_use_mlp",
                                  "mlp_expansion_factor",  // nothing reads it
                                  "mlp_multipliers", "num_logits_to_keep", "projectors_bias", "ssm_in_multiplier",
                                  "ssm_multipliers", "ssm_out_multiplier"}),
          .read = read_falcon_h1,
          .tensors = falcon_tensors,
          .phases = dense_phases,
          .peft_refuses = "out_proj",
          .presets = {falcon_preset(
              "falcon-h1-0.5b", {1024, 2048, 36, 8, 2, 32784, false, 1e-5, 1e11},
              {{"head_dim", 64},
               {"max_position_embeddings", 16384},
               {"mamba_d_ssm", 1536},
               {"mamba_n_heads", 24},
               {"mamba_d_state", 128},
               {"embedding_multiplier", 5.656854249492381},
               {"lm_head_multiplier", 0.0390625},
               {"key_multiplier", 0.390625},
               {"attention_out_multiplier", 0.9375},
               {"ssm_in_multiplier", 1.25},
               {"ssm_out_multiplier", 0.23570226039551587},
               {"ssm_multipliers", {0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738}},
               {"mlp_multipliers", {0.8838834764831844, 0.5859375}}})}};
}

}  // namespace megatrain
