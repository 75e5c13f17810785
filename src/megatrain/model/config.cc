#include "megatrain/model/config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

using nlohmann::json;

// What a family fixes beyond its config fields, and what transformers assumes where a field is absent.
struct Family {
  bool qkv_bias_always;
  bool attention_bias_field;  // attention_bias adds biases to q, k, v and o
  bool mlp_bias_field;
  bool qk_norm;
  bool window_switch;        // use_sliding_window, max_window_layers
  bool window_always;        // sliding_window alone decides
  int64_t default_kv_heads;  // 0: as many as heads
  int64_t default_head_dim;  // 0: hidden / heads
  int64_t default_max_position;
};

// Far above any model, and low enough that no size made of them leaves 64 bits.
constexpr int64_t kMaxVocab = int64_t{1} << 28, kMaxWidth = int64_t{1} << 20, kMaxLayers = int64_t{1} << 14,
                  kMaxHeads = int64_t{1} << 13;

const std::map<std::string, Family> kFamilies = {
    {"LlamaForCausalLM", {false, true, true, false, false, false, 0, 0, 2048}},
    {"MistralForCausalLM", {false, false, false, false, false, true, 8, 0, 131072}},
    {"Qwen2ForCausalLM", {true, false, false, false, true, false, 32, 0, 32768}},
    {"Qwen3ForCausalLM", {false, true, false, true, true, false, 32, 128, 32768}},
};

// Fields that say nothing about the maths of training.
const std::set<std::string> kIrrelevant = {"_name_or_path",
                                           "_attn_implementation",
                                           "_attn_implementation_autoset",
                                           "add_cross_attention",
                                           "auto_map",
                                           "bad_words_ids",
                                           "begin_suppress_tokens",
                                           "bos_token_id",
                                           "chunk_size_feed_forward",
                                           "decoder_start_token_id",
                                           "diversity_penalty",
                                           "do_sample",
                                           "early_stopping",
                                           "encoder_no_repeat_ngram_size",
                                           "eos_token_id",
                                           "exponential_decay_length_penalty",
                                           "finetuning_task",
                                           "forced_bos_token_id",
                                           "forced_eos_token_id",
                                           "id2label",
                                           "is_decoder",
                                           "is_encoder_decoder",
                                           "label2id",
                                           "length_penalty",
                                           "max_length",
                                           "min_length",
                                           "name_or_path",
                                           "no_repeat_ngram_size",
                                           "num_beam_groups",
                                           "num_beams",
                                           "num_return_sequences",
                                           "output_attentions",
                                           "output_hidden_states",
                                           "output_scores",
                                           "prefix",
                                           "problem_type",
                                           "remove_invalid_values",
                                           "repetition_penalty",
                                           "return_dict",
                                           "return_dict_in_generate",
                                           "sep_token_id",
                                           "suppress_tokens",
                                           "task_specific_params",
                                           "temperature",
                                           "tokenizer_class",
                                           "top_k",
                                           "top_p",
                                           "transformers_version",
                                           "typical_p",
                                           "unsloth_fixed",
                                           "unsloth_version",
                                           "use_cache",
                                           "use_bfloat16",
                                           "unk_token_id",
                                           "tf_legacy_loss",
                                           "torchscript",
                                           "tie_encoder_decoder",
                                           "cross_attention_hidden_size",
                                           "pruned_heads",
                                           "use_mrope"};

// Fields read below, or checked to hold the only value supported.
const std::set<std::string> kUsed = {"architectures",
                                     "model_type",
                                     "vocab_size",
                                     "pad_token_id",
                                     "hidden_size",
                                     "intermediate_size",
                                     "num_hidden_layers",
                                     "num_attention_heads",
                                     "num_key_value_heads",
                                     "head_dim",
                                     "max_position_embeddings",
                                     "rms_norm_eps",
                                     "initializer_range",
                                     "tie_word_embeddings",
                                     "attention_bias",
                                     "mlp_bias",
                                     "sliding_window",
                                     "use_sliding_window",
                                     "max_window_layers",
                                     "layer_types",
                                     "rope_theta",
                                     "rope_scaling",
                                     "rope_parameters",
                                     "hidden_act",
                                     "attention_dropout",
                                     "pretraining_tp",
                                     "partial_rotary_factor",
                                     "original_max_position_embeddings",
                                     "torch_dtype",
                                     "dtype"};

class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  int64_t positive(const char* key, int64_t absent = 0, int64_t most = int64_t{1} << 40) const {
    if (!has(key)) {
      if (absent > 0) return absent;
      fail_input(fmt::format("{}: '{}' is missing; it must be a positive integer", where_, key));
    }
    const json& value = object_.at(key);
    if (!value.is_number_integer() || value < 1 || value > most) {
      fail_input(fmt::format("{}: '{}' is {}; it must be an integer from 1 to {}", where_, key, value.dump(), most));
    }
    return value.get<int64_t>();
  }

  double number(const char* key, double absent) const {
    if (!has(key)) return absent;
    const json& value = object_.at(key);
    if (!value.is_number()) fail_input(fmt::format("{}: '{}' is {}; it must be a number", where_, key, value.dump()));
    return value.get<double>();
  }

  double positive_number(const char* key, double absent) const {
    const double value = number(key, absent);
    if (!(value > 0) || !std::isfinite(value)) {
      fail_input(fmt::format("{}: '{}' is {}; it must be a number above 0", where_, key, value));
    }
    return value;
  }

  bool boolean(const char* key, bool absent) const {
    if (!has(key)) return absent;
    const json& value = object_.at(key);
    if (!value.is_boolean())
      fail_input(fmt::format("{}: '{}' is {}; it must be true or false", where_, key, value.dump()));
    return value.get<bool>();
  }

  std::string string(const char* key, const std::string& absent) const {
    if (!has(key)) return absent;
    const json& value = object_.at(key);
    if (!value.is_string()) fail_input(fmt::format("{}: '{}' is {}; it must be a string", where_, key, value.dump()));
    return value.get<std::string>();
  }

  void only(const char* key, const json& supported) const {
    if (has(key) && object_.at(key) != supported) {
      fail_input(
          fmt::format("{}: '{}' is {}; megatrain supports only {} here, and training without it would change the maths",
                      where_, key, object_.at(key).dump(), supported.dump()));
    }
  }

  const json& at(const char* key) const { return object_.at(key); }
  const std::string& where() const { return where_; }

 private:
  const json& object_;
  std::string where_;
};

void refuse_unknown(const json& object, const std::set<std::string>& used, const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (used.count(key) || kIrrelevant.count(key)) continue;
    if (value.is_null() || value == json(false)) continue;
    fail_input(
        fmt::format("{}: field '{}' is {}: megatrain does not know this field and will not train as if it were not "
                    "there; if it does not change the model's maths, remove it from the file",
                    where, key, value.dump().substr(0, 80)));
  }
}

std::optional<DType> parse_dtype(const Reader& r) {
  const std::string name = r.string("dtype", r.string("torch_dtype", ""));
  if (name.empty()) return {};
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  if (name == "float32") return DType::f32;
  fail_input(fmt::format("{}: 'torch_dtype' is '{}'; expected bfloat16, float16 or float32", r.where(), name));
}

// PyTorch's padding_idx: a negative one counts from the end of the vocabulary.
int64_t parse_pad_id(const Reader& r, int64_t vocab) {
  if (!r.has("pad_token_id")) return -1;
  const json& value = r.at("pad_token_id");
  if (!value.is_number_integer() || value < -vocab || value >= vocab) {
    fail_input(fmt::format("{}: 'pad_token_id' is {}; it must be null or a token id below vocab_size ({})", r.where(),
                           value.dump(), vocab));
  }
  const int64_t id = value.get<int64_t>();
  return id < 0 ? vocab + id : id;
}

double yarn_attention_factor(const Reader& rope, double factor) {
  const auto mscale = [&](double weight) { return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0; };
  if (rope.has("attention_factor")) return rope.positive_number("attention_factor", 1.0);
  const double all = rope.number("mscale_all_dim", 0), one = rope.number("mscale", 0);
  return all != 0 && one != 0 ? mscale(one) / mscale(all) : mscale(1.0);
}

// Both forms: rope_theta beside rope_scaling, and transformers 5's rope_parameters.
RopeConfig parse_rope(const Reader& model, int64_t max_position) {
  RopeConfig rope;
  static const json kNone = json::object();
  const char* key = model.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json& object = model.has(key) ? model.at(key) : kNone;
  const Reader r(object, fmt::format("{}: {}", model.where(), key));
  if (!object.is_object()) fail_input(fmt::format("{} is {}; it must be an object", r.where(), object.dump()));
  rope.theta = r.positive_number("rope_theta", model.positive_number("rope_theta", 10000.0));
  r.only("partial_rotary_factor", 1.0);

  std::set<std::string> used = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  const std::string type = r.string("rope_type", r.string("type", "default"));
  const auto require = [&](const char* name) {
    if (!r.has(name)) fail_input(fmt::format("{}: '{}' is missing; scaling '{}' needs it", r.where(), name, type));
  };
  // transformers: a field of the model itself goes before the scaling's own, and both before max_position_embeddings
  const double original =
      model.positive_number("original_max_position_embeddings",
                            r.positive_number("original_max_position_embeddings", static_cast<double>(max_position)));
  if (type == "default") {
    rope.scaling = RopeScaling::none;
  } else if (type == "linear") {
    require("factor");
    rope.scaling = RopeScaling::linear;
    rope.factor = r.positive_number("factor", 1.0);
    used.insert("factor");
  } else if (type == "llama3") {
    for (const char* name : {"factor", "low_freq_factor", "high_freq_factor"}) require(name);
    rope.scaling = RopeScaling::llama3;
    rope.factor = r.positive_number("factor", 1.0);
    rope.low_freq_factor = r.positive_number("low_freq_factor", 1.0);
    rope.high_freq_factor = r.positive_number("high_freq_factor", 4.0);
    rope.original_max_position = original;
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      fail_input(fmt::format("{}: high_freq_factor ({}) must be above low_freq_factor ({})", r.where(),
                             rope.high_freq_factor, rope.low_freq_factor));
    }
    used.insert({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    rope.original_max_position = original;
    rope.factor = r.positive_number("factor", static_cast<double>(max_position) / original);
    rope.beta_fast = r.positive_number("beta_fast", 32.0);
    rope.beta_slow = r.positive_number("beta_slow", 1.0);
    rope.truncate = r.boolean("truncate", true);
    rope.attention_factor = yarn_attention_factor(r, rope.factor);
    used.insert({"factor", "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim",
                 "original_max_position_embeddings"});
  } else {
    fail_input(fmt::format("{}: RoPE scaling '{}' is not supported; supported are default, linear, llama3 and yarn",
                           r.where(), type));
  }
  refuse_unknown(object, used, r.where());
  return rope;
}

std::vector<int64_t> parse_windows(const Reader& r, const Family& family, int64_t layers, bool window_given) {
  std::vector<int64_t> window(static_cast<size_t>(layers), 0);
  if (!family.window_switch && !family.window_always) {
    r.only("sliding_window", json(nullptr));
    r.only("use_sliding_window", false);
    return window;
  }
  // transformers takes 4096 where the key is absent; an explicit null means none
  const bool on = family.window_always || r.boolean("use_sliding_window", false);
  const int64_t size = !on || (window_given && !r.has("sliding_window")) ? 0 : r.positive("sliding_window", 4096);
  const bool from_first = !family.window_switch || (r.has("max_window_layers") && r.at("max_window_layers") == 0);
  const int64_t first = from_first ? 0 : r.positive("max_window_layers", 28);
  for (int64_t l = 0; l < layers; ++l) window[static_cast<size_t>(l)] = l >= first ? size : 0;
  if (r.has("layer_types") && family.window_switch) {
    const json& types = r.at("layer_types");
    if (!types.is_array() || static_cast<int64_t>(types.size()) != layers) {
      fail_input(fmt::format("{}: 'layer_types' must list one type for each of the {} layers", r.where(), layers));
    }
    for (int64_t l = 0; l < layers; ++l) {
      const json& type = types[static_cast<size_t>(l)];
      if (type == "full_attention") {
        window[static_cast<size_t>(l)] = 0;
      } else if (type == "sliding_attention") {
        if (size <= 0)
          fail_input(
              fmt::format("{}: layer_types[{}] is sliding_attention, but no sliding_window is in force", r.where(), l));
        window[static_cast<size_t>(l)] = size;
      } else {
        fail_input(fmt::format("{}: layer_types[{}] is {}; supported are full_attention and sliding_attention",
                               r.where(), l, type.dump()));
      }
    }
  }
  return window;
}

}  // namespace

ModelConfig parse_model_config(const json& object, const std::string& where) {
  if (!object.is_object()) fail_input(where + ": expected a JSON object");
  const Reader r(object, where);
  ModelConfig c;
  if (!r.has("architectures") || !r.at("architectures").is_array() || r.at("architectures").size() != 1 ||
      !r.at("architectures")[0].is_string()) {
    fail_input(where + ": 'architectures' must be a list with one name, such as [\"LlamaForCausalLM\"]");
  }
  c.architecture = r.at("architectures")[0].get<std::string>();
  const auto found = kFamilies.find(c.architecture);
  if (found == kFamilies.end()) {
    std::vector<std::string> names;
    for (const auto& [name, family] : kFamilies) names.push_back(name);
    fail_input(fmt::format("{}: architecture '{}' is not supported; supported are {}", where, c.architecture,
                           fmt::join(names, ", ")));
  }
  const Family& family = found->second;

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
    r.only("attention_bias", false);
  }
  if (family.qkv_bias_always) c.qkv_bias = true;
  if (family.mlp_bias_field) {
    c.mlp_bias = r.boolean("mlp_bias", false);
  } else {
    r.only("mlp_bias", false);
  }
  c.qk_norm = family.qk_norm;
  c.rope = parse_rope(r, c.max_position);
  c.window = parse_windows(r, family, c.layers, object.contains("sliding_window"));

  r.only("hidden_act", "silu");
  r.only("pretraining_tp", 1);
  r.only("partial_rotary_factor", 1.0);
  if (r.number("attention_dropout", 0) != 0) r.only("attention_dropout", 0.0);
  refuse_unknown(object, kUsed, where);
  return c;
}

std::vector<double> rope_frequencies(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const int64_t half = config.head_dim / 2;
  const double dim = static_cast<double>(config.head_dim);
  std::vector<double> frequency(static_cast<size_t>(half));
  // yarn's ramp runs between the pairs that turn beta_fast and beta_slow times within the original context
  const auto turning_pair = [&](double turns) {
    return dim * std::log(rope.original_max_position / (turns * 2 * M_PI)) / (2 * std::log(rope.theta));
  };
  double low = 0, high = 0;
  if (rope.scaling == RopeScaling::yarn) {
    low = turning_pair(rope.beta_fast);
    high = turning_pair(rope.beta_slow);
    if (rope.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
  }
  for (int64_t i = 0; i < half; ++i) {
    const double base = std::pow(rope.theta, -2.0 * static_cast<double>(i) / dim);
    double f = base;
    switch (rope.scaling) {
      case RopeScaling::none: break;
      case RopeScaling::linear: f = base / rope.factor; break;
      case RopeScaling::llama3: {
        const double wavelength = 2 * M_PI / base;
        const double turns = rope.original_max_position / wavelength;
        if (turns < rope.low_freq_factor) {
          f = base / rope.factor;
        } else if (turns <= rope.high_freq_factor) {
          const double smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
          f = (1 - smooth) * base / rope.factor + smooth * base;
        }
        break;
      }
      case RopeScaling::yarn: {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        f = base / rope.factor * ramp + base * (1 - ramp);
        break;
      }
    }
    frequency[static_cast<size_t>(i)] = f;
  }
  return frequency;
}

}  // namespace megatrain
