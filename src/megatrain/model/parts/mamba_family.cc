#include "megatrain/model/parts/mamba_family.h"

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/ops/short_conv.h"
#include "megatrain/ops/ssd.h"

namespace megatrain {

using nlohmann::json;

std::optional<std::vector<bool>> read_mamba_layers(const ConfigReader& r, const char* key, int64_t layers) {
  if (!r.has(key)) return std::nullopt;
  const json& types = r.at(key);
  if (!types.is_array() || std::ssize(types) != layers)
    fail_input(fmt::format("{}: '{}' must list one type for each of the {} layers", r.where(), key, layers));
  std::vector<bool> mamba;
  for (const json& type : types) {
    const bool is_mamba = type == json("mamba") || type == json("linear_attention");
    if (!is_mamba && type != json("attention") && type != json("full_attention"))
      fail_input(fmt::format("{}: {}[{}] is {}; supported are mamba and attention", r.where(), key, mamba.size(),
                             type.dump()));
    mamba.push_back(is_mamba);
  }
  return mamba;
}

namespace {

std::optional<double> step_limit(const json& value) {
  if (value.is_object() && value == json{{"__float__", "Infinity"}}) return std::numeric_limits<double>::infinity();
  if (value.is_number() && value >= 0) return value.get<double>();
  return std::nullopt;
}

void check_size(const ConfigReader& r, const char* key, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    fail_input(fmt::format("{}: '{}' is {}; supported are {} to {}", r.where(), key, value, least, most));
}

}  // namespace

void read_step_limits(const ConfigReader& r, const char* key, Mamba2Config& m) {
  r.refuse_null(key);
  if (!r.has(key)) return;
  const json& limits = r.at(key);
  const bool pair = limits.is_array() && limits.size() == 2;
  const std::optional<double> least = pair ? step_limit(limits[0]) : std::nullopt,
                              most = pair ? step_limit(limits[1]) : std::nullopt;
  if (!least || !most || *least > *most)
    fail_input(
        fmt::format("{}: '{}' is {}; expected two numbers, the least and the most, of which the second may be "
                    "{{\"__float__\": \"Infinity\"}}",
                    r.where(), key, limits.dump()));
  m.least_step = *least;
  m.most_step = *most;
}

std::vector<std::string> mamba_fields(std::vector<std::string> more) {
  for (const char* field : {"mamba_chunk_size", "mamba_conv_bias", "mamba_d_conv", "mamba_d_head", "mamba_d_state",
                            "mamba_expand", "mamba_n_groups", "mamba_n_heads", "mamba_proj_bias", "time_step_limit"})
    more.emplace_back(field);
  return more;
}

void read_mamba_sizes(const ConfigReader& r, int64_t width, const char* width_is, Mamba2Config& m) {
  for (const char* key : {"mamba_expand", "mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head",
                          "mamba_d_conv", "mamba_chunk_size"})
    r.refuse_null(key);
  r.positive("mamba_chunk_size", 256);  // decides the order of sums, which is ours
  m.heads = r.positive("mamba_n_heads", 128);
  m.groups = r.positive("mamba_n_groups", 1);
  m.state_dim = r.positive("mamba_d_state", 256);
  const bool given = r.has("mamba_d_head") && r.at("mamba_d_head") != "auto";
  m.head_dim = given ? r.positive("mamba_d_head") : width / m.heads;
  if (m.head_dim * m.heads != width)
    fail_input(fmt::format("{}: 'mamba_n_heads' is {} and 'mamba_d_head' is {}; their product must be {}, {}",
                           r.where(), m.heads, m.head_dim, width_is, width));
  m.taps = r.positive("mamba_d_conv", 4);
  m.bias = r.boolean("mamba_proj_bias", false);
  m.conv_bias = r.boolean("mamba_conv_bias", true);
  read_step_limits(r, "time_step_limit", m);
  check_mamba(r, {"mamba_n_heads", "mamba_n_groups", "mamba_d_head", "mamba_d_state", "mamba_d_conv"}, m);
}

void check_mamba(const ConfigReader& r, const MambaNames& names, const Mamba2Config& m) {
  check_size(r, names.heads, m.heads, 1, int64_t{1} << 13);
  check_size(r, names.head_dim, m.head_dim, 1, kMostSsdDim);
  check_size(r, names.state_dim, m.state_dim, 1, kMostSsdDim);
  check_size(r, names.taps, m.taps, 2, kMostConvTaps);
  if (m.heads % m.groups != 0)
    fail_input(
        fmt::format("{}: {} {} is not a multiple of {} {}", r.where(), names.heads, m.heads, names.groups, m.groups));
}

}  // namespace megatrain
