// LFM2: most layers have a gated convolution over three tokens, the others attention with a norm for each query and key
// head.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/ops/short_conv.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Whether each layer has a convolution.
std::vector<bool> read_conv_layers(const ConfigReader& r, int64_t layers) {
  std::vector<bool> conv;
  if (r.has("layer_types")) {
    const json& types = r.at("layer_types");
    for (const json& type : types.is_array() ? types : json::array()) {
      if (type != json("conv") && type != json("full_attention"))
        fail_input(fmt::format("{}: layer_types[{}] is {}; supported are conv and full_attention", r.where(),
                               conv.size(), type.dump()));
      conv.push_back(type == json("conv"));
    }
    if (std::ssize(conv) != layers)
      fail_input(fmt::format("{}: 'layer_types' must list one type for each of the {} layers", r.where(), layers));
    return conv;
  }
  conv.assign(static_cast<size_t>(layers), r.has("full_attn_idxs"));
  if (!r.has("full_attn_idxs")) return conv;
  const json& list = r.at("full_attn_idxs");
  for (const json& index : list.is_array() ? list : json::array({nullptr})) {
    if (!index.is_number_integer() || index < 0 || index >= layers)
      fail_input(fmt::format("{}: 'full_attn_idxs' is {}; it must list numbers of layers, from 0 to {}", r.where(),
                             list.dump(), layers - 1));
    conv[index.get<size_t>()] = false;
  }
  return conv;
}

// intermediate_size, or what transformers makes of it.
int64_t read_lfm2_ff(const ConfigReader& r) {
  const int64_t given = r.positive("block_ff_dim", r.positive("intermediate_size", 12288, kMaxWidth), kMaxWidth);
  if (!r.boolean("block_auto_adjust_ff_dim", true)) return given;
  const bool null_factor = r.object().contains("block_ffn_dim_multiplier") && !r.has("block_ffn_dim_multiplier");
  const int64_t two_thirds = 2 * given / 3;
  if (null_factor) return two_thirds;
  const auto ff =
      static_cast<int64_t>(r.positive_number("block_ffn_dim_multiplier", 1) * static_cast<double>(two_thirds));
  const int64_t multiple = r.positive("block_multiple_of", 256, kMaxWidth);
  return (ff + multiple - 1) / multiple * multiple;
}

// The same tensor under another name in older files.
void check_twin(const ConfigReader& r, const char* key, const json& value) {
  if (r.has(key) && r.at(key) != value)
    fail_input(fmt::format("{}: '{}' is {}, but the model has {}; correct the wrong one", r.where(), key,
                           r.at(key).dump(), value.dump()));
}

void read_lfm2(const ConfigReader& given, ModelConfig& c) {
  json object = given.object();
  object["intermediate_size"] = read_lfm2_ff(given);
  if (given.has("tie_embedding")) object["tie_word_embeddings"] = given.at("tie_embedding");
  const ConfigReader r(object, given.where());
  read_sizes(r, {.kv_heads = 8, .max_position = 128000}, c);
  c.norm_eps = r.positive_number("norm_eps", 1e-5);
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  c.norm_module = "model.embedding_norm";
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) must_be(r, key, false, c.architecture);
  for (const char* key : {"sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  check_twin(r, "block_dim", c.hidden);
  check_twin(r, "block_norm_eps", c.norm_eps);
  check_twin(r, "conv_dim", c.hidden);
  check_twin(r, "conv_dim_out", c.hidden);
  check_twin(r, "num_heads", c.heads);
  must_be(r, "block_use_swiglu", true, c.architecture);
  c.qk_norm = true;
  c.rope = parse_rope(r, c.max_position, 1e6);
  if (r.has("theta")) check_twin(r, "theta", c.rope.theta);
  c.window.assign(static_cast<size_t>(c.layers), 0);
  std::vector<bool> conv = read_conv_layers(r, c.layers);
  if (std::ranges::count(conv, true) == 0) return;
  c.gated_conv.taps = r.positive("conv_L_cache", 3);
  if (c.gated_conv.taps < 2 || c.gated_conv.taps > kMostConvTaps)
    fail_input(
        fmt::format("{}: 'conv_L_cache' is {}; supported are 2 to {}", r.where(), c.gated_conv.taps, kMostConvTaps));
  c.gated_conv.bias = r.boolean("conv_bias", false);
  c.gated_conv.layers = std::move(conv);
}

std::vector<std::vector<TensorSpec>> lfm2_tensors(const ModelConfig& c, int64_t layer) {
  static constexpr std::array<Renamed, 8> kNames = {{{"input_layernorm.", "operator_norm."},
                                                     {"post_attention_layernorm.", "ffn_norm."},
                                                     {"self_attn.o_proj.", "self_attn.out_proj."},
                                                     {"self_attn.q_norm.", "self_attn.q_layernorm."},
                                                     {"self_attn.k_norm.", "self_attn.k_layernorm."},
                                                     {"mlp.gate_proj.", "feed_forward.w1."},
                                                     {"mlp.up_proj.", "feed_forward.w3."},
                                                     {"mlp.down_proj.", "feed_forward.w2."}}};
  std::vector<std::vector<TensorSpec>> lists = dense_tensors(c, layer);
  rename_modules(layer, kNames, lists.front());
  return lists;
}

Family::Preset lfm2_preset(const char* name, const PresetSizes& sizes, const std::vector<int>& attention) {
  json config = preset_json("Lfm2ForCausalLM", "lfm2", sizes);
  for (const char* key : {"rms_norm_eps", "hidden_act"}) config.erase(key);
  config.update({{"norm_eps", sizes.norm_eps},
                 {"max_position_embeddings", 128000},
                 {"block_auto_adjust_ff_dim", false},
                 {"conv_L_cache", 3},
                 {"full_attn_idxs", attention}});
  return {name, std::move(config)};
}

}  // namespace

Family lfm2_family() {
  return {
      .architecture = "Lfm2ForCausalLM",
      .model_type = "lfm2",
      .fields = {"block_auto_adjust_ff_dim",
                 "block_dim",
                 "block_ff_dim",
                 "block_ffn_dim_multiplier",
                 "block_mlp_init_scale",
                 "block_multiple_of",
                 "block_norm_eps",
                 "block_out_init_scale",
                 "block_use_swiglu",
                 "block_use_xavier_init",
                 "conv_L_cache",
                 "conv_bias",
                 "conv_dim",
                 "conv_dim_out",
                 "conv_use_xavier_init",
                 "full_attn_idxs",
                 "norm_eps",
                 "num_heads",
                 "theta",
                 "tie_embedding",
                 "use_pos_enc"},
      .read = read_lfm2,
      .tensors = lfm2_tensors,
      .phases = dense_phases,
      .presets = {lfm2_preset("lfm2-350m", {1024, 4608, 16, 16, 8, 65536, true, 1e-5, 1e6}, {2, 5, 8, 10, 12, 14}),
                  lfm2_preset("lfm2-1.2b", {2048, 8192, 16, 32, 8, 65536, true, 1e-5, 1e6}, {2, 5, 8, 10, 12, 14})}};
}

}  // namespace megatrain
