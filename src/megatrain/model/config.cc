#include "megatrain/model/config.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"
#include "megatrain/model/config_reader.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

enum class Windows { none, switched, always };  // switched: use_sliding_window, max_window_layers, layer_types

// What a family fixes beyond its config fields, and what transformers assumes where a field is absent.
struct Family {
  const char* model_type;
  bool qkv_bias_always;
  bool attention_bias_field;  // attention_bias adds biases to q, k, v and o
  bool mlp_bias_field;
  bool qk_norm;
  Windows windows;
  int64_t default_kv_heads;  // 0: as many as heads
  int64_t default_head_dim;  // 0: hidden / heads
  int64_t default_max_position;
};

// Far above any model, and low enough that no size made of them leaves 64 bits.
constexpr int64_t kMaxVocab = int64_t{1} << 28, kMaxWidth = int64_t{1} << 20, kMaxLayers = int64_t{1} << 14,
                  kMaxHeads = int64_t{1} << 13;

const std::map<std::string, Family> kFamilies = {
    {"LlamaForCausalLM", {"llama", false, true, true, false, Windows::none, 0, 0, 2048}},
    {"MistralForCausalLM", {"mistral", false, false, false, false, Windows::always, 8, 0, 131072}},
    {"Qwen2ForCausalLM", {"qwen2", true, false, false, false, Windows::switched, 32, 0, 32768}},
    {"Qwen3ForCausalLM", {"qwen3", false, true, false, true, Windows::switched, 32, 128, 32768}},
};

// The architecture's name. transformers goes by model_type and never looks at architectures, so both must agree.
std::string parse_architecture(const ConfigReader& r) {
  std::vector<std::string> names;
  for (const auto& [name, family] : kFamilies) names.push_back(name);
  const std::string type = r.string("model_type", "");
  if (!r.has("architectures")) {
    for (const auto& [name, family] : kFamilies)
      if (type == family.model_type) return name;
  }
  if (!r.has("architectures") || !r.at("architectures").is_array() || r.at("architectures").size() != 1 ||
      !r.at("architectures")[0].is_string()) {
    fail_input(r.where() + ": 'architectures' must be a list with one name, such as [\"LlamaForCausalLM\"]");
  }
  const std::string name = r.at("architectures")[0].get<std::string>();
  const auto found = kFamilies.find(name);
  if (found == kFamilies.end()) {
    fail_input(fmt::format("{}: architecture '{}' is not supported; supported are {}", r.where(), name,
                           fmt::join(names, ", ")));
  }
  if (!type.empty() && type != found->second.model_type) {
    fail_input(
        fmt::format("{}: 'model_type' is '{}' and 'architectures' is [\"{}\"], whose model_type is '{}'; "
                    "transformers goes by model_type: correct the wrong one",
                    r.where(), type, name, found->second.model_type));
  }
  return name;
}

void must_be(const ConfigReader& r, const char* key, const json& supported, const std::string& architecture) {
  if (r.has(key) && r.at(key) != supported) {
    fail_input(fmt::format("{}: '{}' is {}, but {} has no such thing; it must be {}", r.where(), key, r.at(key).dump(),
                           architecture, supported.dump()));
  }
}

std::optional<DType> parse_dtype(const ConfigReader& r) {
  static const std::map<std::string, DType> kTypes = {
      {"bfloat16", DType::bf16}, {"float16", DType::f16}, {"float32", DType::f32}};
  std::optional<DType> type;
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!r.has(key)) continue;
    const auto found = kTypes.find(r.string(key, ""));
    if (found == kTypes.end())
      fail_input(
          fmt::format("{}: '{}' is {}; expected bfloat16, float16 or float32", r.where(), key, r.at(key).dump()));
    if (type && *type != found->second)
      fail_input(fmt::format("{}: 'torch_dtype' is {} and 'dtype' is {}; remove the wrong one", r.where(),
                             r.at("torch_dtype").dump(), r.at("dtype").dump()));
    type = found->second;
  }
  return type;
}

// PyTorch's padding_idx: a negative one counts from the end of the vocabulary.
int64_t parse_pad_id(const ConfigReader& r, int64_t vocab) {
  if (!r.has("pad_token_id")) return -1;
  const json& value = r.at("pad_token_id");
  // compared as signed numbers, the largest unsigned ones would be negative
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() < static_cast<uint64_t>(vocab)
                                               : value.is_number_integer() && value >= -vocab && value < vocab;
  if (!fits) {
    fail_input(fmt::format("{}: 'pad_token_id' is {}; it must be null or a token id below vocab_size ({})", r.where(),
                           value.dump(), vocab));
  }
  const int64_t id = value.get<int64_t>();
  return id < 0 ? vocab + id : id;
}

// Which layers layer_types makes sliding ones; nothing where the field is absent.
std::optional<std::vector<bool>> parse_layer_types(const ConfigReader& r, int64_t layers) {
  if (!r.has("layer_types")) return std::nullopt;
  const json& types = r.at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != layers)
    fail_input(fmt::format("{}: 'layer_types' must list one type for each of the {} layers", r.where(), layers));
  std::vector<bool> sliding;
  for (const json& type : types) {
    if (type != json("full_attention") && type != json("sliding_attention"))
      fail_input(fmt::format("{}: layer_types[{}] is {}; supported are full_attention and sliding_attention", r.where(),
                             sliding.size(), type.dump()));
    sliding.push_back(type == json("sliding_attention"));
  }
  return sliding;
}

std::vector<int64_t> parse_windows(const ConfigReader& r, const ModelConfig& c, const Family& family) {
  // transformers takes 4096 where the key is absent; an explicit null means none
  const bool null = r.object().contains("sliding_window") && !r.has("sliding_window");
  if (family.windows == Windows::none) must_be(r, "sliding_window", nullptr, c.architecture);
  const int64_t given = r.positive("sliding_window", 4096), first = r.not_negative("max_window_layers", 28);
  const bool on = r.boolean("use_sliding_window", family.windows == Windows::always);
  const auto types = parse_layer_types(r, c.layers);

  if (family.windows == Windows::none) must_be(r, "use_sliding_window", false, c.architecture);
  const int64_t size = family.windows == Windows::none || null || !on ? 0 : given;
  if (family.windows == Windows::always && !null && !on)
    fail_input(
        fmt::format("{}: 'use_sliding_window' is false, but {} goes by sliding_window alone, which is {}; set "
                    "that to null, or remove use_sliding_window",
                    r.where(), c.architecture, given));
  if (family.windows == Windows::always && size > 0 && r.has("max_window_layers") && first > 0)
    fail_input(
        fmt::format("{}: 'max_window_layers' is {}, but {} has the sliding window in all layers; remove it, or "
                    "set sliding_window to null",
                    r.where(), first, c.architecture));

  std::vector<int64_t> window;
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool in_reach = family.windows == Windows::always || l >= first;
    const int64_t expected = in_reach ? size : 0;
    window.push_back(!types || family.windows != Windows::switched ? expected : (*types)[l] ? size : 0);
    if (!types) continue;
    if ((*types)[l] && size == 0)
      fail_input(
          fmt::format("{}: layer_types[{}] is sliding_attention, but no sliding_window is in force", r.where(), l));
    if (!(*types)[l] && window.back() > 0)
      fail_input(
          fmt::format("{}: layer_types[{}] is full_attention, but {} has the sliding window of {} in all layers, "
                      "and transformers does not read its layer_types; remove them, or set sliding_window to "
                      "null",
                      r.where(), l, c.architecture, size));
  }
  return window;
}

}  // namespace

ModelConfig parse_model_config(const json& object, const std::string& where) {
  const ConfigReader r(object, where);
  ModelConfig c;
  c.architecture = parse_architecture(r);
  const Family& family = kFamilies.at(c.architecture);
  check_known_fields(r);

  c.vocab = r.positive("vocab_size", 0, kMaxVocab);
  c.pad_id = parse_pad_id(r, c.vocab);
  c.hidden = r.positive("hidden_size", 0, kMaxWidth);
  c.ff = r.positive("intermediate_size", 0, kMaxWidth);
  c.layers = r.positive("num_hidden_layers", 0, kMaxLayers);
  c.heads = r.positive("num_attention_heads", 0, kMaxHeads);
  const int64_t default_kv = family.default_kv_heads > 0 ? family.default_kv_heads : c.heads;
  c.kv_heads = object.contains("num_key_value_heads") && object.at("num_key_value_heads").is_null()
                   ? c.heads
                   : r.positive("num_key_value_heads", default_kv);
  if (!r.has("head_dim") && family.default_head_dim == 0 && c.hidden % c.heads != 0) {
    fail_input(fmt::format("{}: hidden_size {} is not divisible by num_attention_heads {} and no head_dim is given",
                           where, c.hidden, c.heads));
  }
  if (family.default_head_dim > 0 && object.contains("head_dim") && !r.has("head_dim"))
    fail_input(fmt::format("{}: 'head_dim' is null; {} needs a number, or no such field", where, c.architecture));
  c.head_dim = r.positive("head_dim", family.default_head_dim > 0 ? family.default_head_dim : c.hidden / c.heads);
  c.max_position = r.positive("max_position_embeddings", family.default_max_position);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-6);
  c.init_std = r.positive_number("initializer_range", 0.02);
  c.tied = r.boolean("tie_word_embeddings", false);
  c.dtype = parse_dtype(r);

  if (c.heads % c.kv_heads != 0) {
    fail_input(fmt::format("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where, c.heads,
                           c.kv_heads));
  }
  if (c.head_dim % 2 != 0)
    fail_input(fmt::format("{}: head_dim is {}; rotary embedding needs an even one", where, c.head_dim));
  if (c.head_dim > 256) fail_input(fmt::format("{}: head_dim is {}; at most 256 is supported", where, c.head_dim));

  if (family.attention_bias_field) {
    c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  } else {
    must_be(r, "attention_bias", false, c.architecture);
  }
  if (family.qkv_bias_always) c.qkv_bias = true;
  if (family.mlp_bias_field) {
    c.mlp_bias = r.boolean("mlp_bias", false);
  } else {
    must_be(r, "mlp_bias", false, c.architecture);
  }
  c.qk_norm = family.qk_norm;
  c.rope = parse_rope(r, c.max_position);
  c.window = parse_windows(r, c, family);
  return c;
}

}  // namespace megatrain
