// Bamba: most layers have Mamba 2 instead of attention, of which half of each head rotates.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/mamba_family.h"
#include "megatrain/model/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

std::vector<bool> read_bamba_layers(const ConfigReader& r, int64_t layers) {
  std::vector<bool> mamba(static_cast<size_t>(layers), true);
  if (!r.has("attn_layer_indices")) return mamba;
  const json& list = r.at("attn_layer_indices");
  for (const json& index : list.is_array() ? list : json::array({nullptr})) {
    if (!index.is_number_integer() || index < 0 || index >= layers)
      fail_input(fmt::format("{}: 'attn_layer_indices' is {}; it must list numbers of layers, from 0 to {}", r.where(),
                             list.dump(), layers - 1));
    mamba[index.get<size_t>()] = false;
  }
  return mamba;
}

void read_bamba(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 8, .max_position = 262144}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  c.norm_module = "model.final_layernorm";
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  must_be(r, "z_loss_coefficient", 0.0, c.architecture);
  c.rope = parse_partial_rope(r, c, 10000.0, 0.5);
  if (2 * c.rope.rotary_dim != c.head_dim)
    fail_input(fmt::format("{}: 'partial_rotary_factor' must be 0.5, which transformers takes for {} whatever it says",
                           r.where(), c.architecture));
  c.window = read_no_window(r, c);
  std::vector<bool> mamba = read_bamba_layers(r, c.layers);
  if (std::ranges::count(mamba, true) == 0) return;
  read_mamba_sizes(r, r.positive("mamba_expand", 2, 64) * c.hidden, "mamba_expand * hidden_size", c.mamba2);
  c.mamba2.layers = std::move(mamba);
}

std::vector<std::vector<TensorSpec>> bamba_tensors(const ModelConfig& c, int64_t layer) {
  static constexpr std::array<Renamed, 2> kNames = {
      {{"post_attention_layernorm.", "pre_ff_layernorm."}, {"mlp.", "feed_forward."}}};
  std::vector<std::vector<TensorSpec>> lists = dense_tensors(c, layer);
  rename_modules(layer, kNames, lists.front());
  return lists;
}

}  // namespace

Family bamba_family() {
  json preset = preset_json("BambaForCausalLM", "bamba", {4096, 14336, 32, 32, 8, 128256, false, 1e-5, 1e4});
  preset.update({{"max_position_embeddings", 4096},
                 {"attn_layer_indices", {9, 18, 27}},
                 {"mamba_n_heads", 128},
                 {"mamba_d_head", 64},
                 {"mamba_d_state", 128}});
  return {.architecture = "BambaForCausalLM",
          .model_type = "bamba",
          .fields =
              mamba_fields({"attn_layer_indices", "num_logits_to_keep", "partial_rotary_factor", "z_loss_coefficient"}),
          .read = read_bamba,
          .tensors = bamba_tensors,
          .phases = dense_phases,
          .presets = {{"bamba-9b", std::move(preset)}}};
}

}  // namespace megatrain
