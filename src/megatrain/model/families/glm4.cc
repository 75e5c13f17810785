// GLM-4: gate and up in one tensor, and RoPE in pairs on a part of each head. The releases of April 2025 (0414, model
// type glm4) also have norms behind attention and MLP.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr const char *kGlm = "GlmForCausalLM", *kTurning = "partial_rotary_factor";

RopeConfig read_glm4_rope(const ConfigReader& r, const ModelConfig& c) {
  json object = json::object();
  std::optional<double> turning;
  if (r.has(kTurning)) turning = r.positive_number(kTurning, 1);
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) {
    if (!r.has(key)) continue;
    object[key] = r.at(key);
    if (!object[key].is_object()) continue;
    const ConfigReader inner(r.at(key), fmt::format("{}: {}", r.where(), key));
    if (!inner.has(kTurning)) continue;
    const double own = inner.positive_number(kTurning, 1);
    if (turning && *turning != own)
      fail_input(
          fmt::format("{}: '{}' is both {:g} and {:g}; remove the wrong one", r.where(), kTurning, *turning, own));
    turning = own;
    object[key].erase(kTurning);
  }
  RopeConfig rope = parse_rope(ConfigReader(object, r.where()), c.max_position);
  rope.pairs = true;
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(c.head_dim) * turning.value_or(0.5));
  if (rope.rotary_dim % 2 != 0 || rope.rotary_dim == 0 || rope.rotary_dim > c.head_dim)
    fail_input(fmt::format(
        "{}: '{}' is {:g}, so {} of a head's {} elements would be rotated; the number must be even and at most {}",
        r.where(), kTurning, turning.value_or(0.5), rope.rotary_dim, c.head_dim, c.head_dim));
  return rope;
}

void read_glm4(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 2, .null_kv_heads = false, .head_dim = 128, .max_position = 131072}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1.5625e-7);
  if (!r.object().contains("pad_token_id")) {  // transformers' default
    c.pad_id = 151329;
    if (c.pad_id >= c.vocab)
      fail_input(
          fmt::format("{}: 'pad_token_id' is missing, and transformers then uses 151329, above vocab_size ({}); set it "
                      "to null or to a token's id",
                      r.where(), c.vocab));
  }
  c.qkv_bias = r.boolean("attention_bias", true);
  must_be(r, "mlp_bias", false, c.architecture);
  c.rope = read_glm4_rope(r, c);
  c.window = read_no_window(r, c);
}

std::vector<std::vector<TensorSpec>> glm4_tensors(const ModelConfig& c, int64_t layer) {
  std::vector<TensorSpec> tensors = attention_tensors(c, layer);
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const auto add = [&](int operand, const char* module, int64_t rows, int64_t cols, TensorRole role) {
    tensors.push_back({.name = fmt::format("{}{}.weight", prefix, module),
                       .rows = rows,
                       .cols = cols,
                       .role = role,
                       .operand = operand});
  };
  using At = BlockOperand;
  add(At::gate_up, "mlp.gate_up_proj", 2 * c.ff, c.hidden, TensorRole::matrix);
  add(At::down, "mlp.down_proj", c.hidden, c.ff, TensorRole::matrix);
  if (c.architecture == kGlm) return {std::move(tensors)};
  add(At::o_norm, "post_self_attn_layernorm", 1, c.hidden, TensorRole::norm);
  add(At::down_norm, "post_mlp_layernorm", 1, c.hidden, TensorRole::norm);
  return {std::move(tensors)};
}

Family::Preset glm4_preset(const char* name, const PresetSizes& sizes) {
  json config = preset_json("Glm4ForCausalLM", "glm4", sizes);
  config.update({{"head_dim", 128}, {"attention_bias", false}, {kTurning, 0.5}, {"pad_token_id", 151329}});
  return {name, std::move(config)};
}

}  // namespace

// llama.cpp has it as chatglm, with q, k and v in one tensor.
Family glm_family() {
  return {.architecture = kGlm,
          .model_type = "glm",
          .fields = {kTurning},
          .read = read_glm4,
          .tensors = glm4_tensors,
          .phases = dense_phases};
}

Family glm4_family() {
  return {.architecture = "Glm4ForCausalLM",
          .model_type = "glm4",
          .fields = {kTurning},
          .read = read_glm4,
          .tensors = glm4_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "glm4",
                                .tensors = {{"post_self_attn_layernorm.weight", "post_attention_norm.weight"},
                                            {"post_attention_layernorm.weight", "ffn_norm.weight"},
                                            {"post_mlp_layernorm.weight", "post_ffw_norm.weight"}}},
          .presets = {glm4_preset("glm4-9b", {4096, 13696, 40, 32, 2, 151552, false, 1e-5, 1e4}),
                      glm4_preset("glm4-32b", {6144, 23040, 61, 48, 8, 151552, false, 1e-5, 1e4})}};
}

}  // namespace megatrain
