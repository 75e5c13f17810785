#include "megatrain/model/parts/delta_family.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr const char *kLinear = "linear_attention", *kFull = "full_attention";

// Whether each layer has a delta net: by layer_types if given, otherwise all but every n-th.
std::vector<bool> read_linear_layers(const ConfigReader& r, int64_t layers) {
  const int64_t interval = r.positive("full_attention_interval", 4);
  std::vector<bool> linear;
  if (!r.has("layer_types")) {
    for (int64_t l = 0; l < layers; ++l) linear.push_back((l + 1) % interval != 0);
    return linear;
  }
  const json& types = r.at("layer_types");
  if (!types.is_array() || std::ssize(types) != layers)
    fail_input(fmt::format("{}: 'layer_types' must list one type for each of the {} layers", r.where(), layers));
  for (const json& type : types) {
    if (type != json(kLinear) && type != json(kFull))
      fail_input(fmt::format("{}: layer_types[{}] is {}; supported are {} and {}", r.where(), linear.size(),
                             type.dump(), kFull, kLinear));
    linear.push_back(type == json(kLinear));
  }
  return linear;
}

int64_t read_head_width(const ConfigReader& r, const char* key) {
  constexpr int64_t kStep = 16, kMost = 256;  // what the ops take
  const int64_t width = r.positive(key, 128);
  if (width % kStep != 0 || width > kMost)
    fail_input(
        fmt::format("{}: '{}' is {}; supported are multiples of {} up to {}", r.where(), key, width, kStep, kMost));
  return width;
}

DeltaNetConfig read_delta_net(const ConfigReader& r, int64_t layers) {
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim"})
    r.refuse_null(key);
  constexpr int64_t kMostHeads = 1 << 13;
  DeltaNetConfig d{.key_heads = r.positive("linear_num_key_heads", 16, kMostHeads),
                   .value_heads = r.positive("linear_num_value_heads", 32, kMostHeads),
                   .key_dim = read_head_width(r, "linear_key_head_dim"),
                   .value_dim = read_head_width(r, "linear_value_head_dim"),
                   .taps = r.positive("linear_conv_kernel_dim", 4),
                   .layers = read_linear_layers(r, layers)};
  if (d.value_heads % d.key_heads != 0)
    fail_input(fmt::format("{}: linear_num_value_heads {} is not a multiple of linear_num_key_heads {}", r.where(),
                           d.value_heads, d.key_heads));
  if (d.taps < 2 || d.taps > kMostConvTaps)
    fail_input(
        fmt::format("{}: 'linear_conv_kernel_dim' is {}; supported are 2 to {}", r.where(), d.taps, kMostConvTaps));
  return d;
}

}  // namespace

std::vector<std::string> delta_fields(std::vector<std::string> more) {
  for (const char* field :
       {"full_attention_interval", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "partial_rotary_factor"})
    more.emplace_back(field);
  return more;
}

void read_delta_sizes(const ConfigReader& r, int64_t kv_heads, const std::vector<std::string>& unused_rope,
                      ModelConfig& c) {
  read_sizes(r, {.kv_heads = kv_heads, .head_dim = 256, .max_position = 32768}, c);
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) must_be(r, key, false, c.architecture);
  for (const char* key : {"sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  c.qk_norm = c.attention_gate = true;
  c.norm_offset = 1;
  c.rope = parse_partial_rope(r, c, 1e4, 0.25, unused_rope);
  c.window.assign(static_cast<size_t>(c.layers), 0);
  c.delta_net = read_delta_net(r, c.layers);
}

json delta_preset(int64_t value_heads, double rope_theta) {
  return {{"head_dim", 256},
          {"max_position_embeddings", 262144},
          {"full_attention_interval", 4},
          {"linear_num_key_heads", 16},
          {"linear_num_value_heads", value_heads},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128},
          {"linear_conv_kernel_dim", 4},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", rope_theta}, {"partial_rotary_factor", 0.25}}}};
}

}  // namespace megatrain
