#include "megatrain/model/parts/dense_family.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/block.h"
#include "megatrain/model/layers/channels/mlp.h"
#include "megatrain/model/layers/mixers/attention.h"
#include "megatrain/model/layers/mixers/delta_net.h"
#include "megatrain/model/layers/mixers/gated_conv.h"
#include "megatrain/model/layers/mixers/latent_attention.h"
#include "megatrain/model/layers/mixers/mamba2.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Far above any model, and low enough that no product of these sizes overflows 64 bits.
constexpr int64_t kMaxVocab = int64_t{1} << 28, kMaxHeads = int64_t{1} << 13;

std::optional<DType> read_dtype(const ConfigReader& r) {
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

// PyTorch's padding_idx. A negative value counts from the end of the vocabulary.
int64_t read_pad_id(const ConfigReader& r, int64_t vocab) {
  if (!r.has("pad_token_id")) return -1;
  const json& value = r.at("pad_token_id");
  // unsigned values are compared as such, since the largest would become negative as signed ones
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() < static_cast<uint64_t>(vocab)
                                               : value.is_number_integer() && value >= -vocab && value < vocab;
  if (!fits) {
    fail_input(fmt::format("{}: 'pad_token_id' is {}; it must be null or a token id below vocab_size ({})", r.where(),
                           value.dump(), vocab));
  }
  const int64_t id = value.get<int64_t>();
  return id < 0 ? vocab + id : id;
}

struct WindowFields {
  bool null;      // sliding_window is null, which means no window; if absent it is 4096
  int64_t given;  // sliding_window
  int64_t first;  // max_window_layers
  bool on;        // use_sliding_window
  std::optional<std::vector<bool>> types;

  int64_t size() const { return null || !on ? 0 : given; }
};

WindowFields read_window_fields(const ConfigReader& r, int64_t layers, bool on) {
  WindowFields f{};
  f.null = r.object().contains("sliding_window") && !r.has("sliding_window");
  f.given = r.positive("sliding_window", 4096);
  f.first = r.not_negative("max_window_layers", 28);
  f.on = r.boolean("use_sliding_window", on);
  f.types = read_layer_types(r, layers);
  return f;
}

void check_sliding_types(const ConfigReader& r, const WindowFields& f, int64_t size) {
  for (size_t l = 0; f.types && l < f.types->size(); ++l) {
    if ((*f.types)[l] && size == 0)
      fail_input(
          fmt::format("{}: layer_types[{}] is sliding_attention, but there is no active sliding_window", r.where(), l));
  }
}

// Adds a layer's tensors to a list.
struct TensorList {
  std::string prefix;
  std::vector<TensorSpec>& tensors;

  void weight(int operand, const char* module, int64_t rows, int64_t cols) {
    tensors.push_back(
        {.name = fmt::format("{}{}.weight", prefix, module), .rows = rows, .cols = cols, .operand = operand});
  }
  void row(int operand, TensorRole role, const char* name, int64_t size) {
    tensors.push_back({.name = prefix + name, .rows = 1, .cols = size, .role = role, .operand = operand});
  }
};

TensorList list_of(int64_t layer, std::vector<TensorSpec>& tensors) {
  return {fmt::format("model.layers.{}.", layer), tensors};
}

}  // namespace

std::optional<std::vector<bool>> read_layer_types(const ConfigReader& r, int64_t layers) {
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

void must_be(const ConfigReader& r, const char* key, const json& supported, const std::string& architecture) {
  if (supported == json(true)) r.boolean(key, true);  // null is not true
  if (r.has(key) && r.at(key) != supported) {
    fail_input(fmt::format("{}: '{}' is {}, but {} does not support it; it must be {}", r.where(), key,
                           r.at(key).dump(), architecture, supported.dump()));
  }
}

void read_sizes(const ConfigReader& r, const AbsentSizes& absent, ModelConfig& c) {
  c.vocab = r.positive("vocab_size", 0, kMaxVocab);
  c.pad_id = read_pad_id(r, c.vocab);
  c.hidden = r.positive("hidden_size", 0, kMaxWidth);
  c.ff = r.positive("intermediate_size", 0, kMaxWidth);
  c.layers = r.positive("num_hidden_layers", 0, kMaxLayers);
  c.heads = r.positive("num_attention_heads", 0, kMaxHeads);
  for (const char* key : {"max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"}) r.refuse_null(key);
  if (!absent.null_kv_heads) r.refuse_null("num_key_value_heads");
  const bool null_kv_heads = r.object().contains("num_key_value_heads") && !r.has("num_key_value_heads");
  c.kv_heads =
      null_kv_heads ? c.heads : r.positive("num_key_value_heads", absent.kv_heads > 0 ? absent.kv_heads : c.heads);
  if (!r.has("head_dim") && absent.head_dim == 0 && c.hidden % c.heads != 0) {
    fail_input(fmt::format("{}: hidden_size {} is not divisible by num_attention_heads {} and no head_dim is given",
                           r.where(), c.hidden, c.heads));
  }
  if (absent.head_dim > 0 && r.object().contains("head_dim") && !r.has("head_dim"))
    fail_input(fmt::format("{}: 'head_dim' is null; {} needs a number: write it, or remove the field", r.where(),
                           c.architecture));
  c.head_dim = r.positive("head_dim", absent.head_dim > 0 ? absent.head_dim : c.hidden / c.heads);
  c.max_position = r.positive("max_position_embeddings", absent.max_position);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-6);
  c.init_std = r.positive_number("initializer_range", 0.02);
  c.tied = r.boolean("tie_word_embeddings", false);
  c.dtype = read_dtype(r);

  if (c.heads % c.kv_heads != 0) {
    fail_input(fmt::format("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", r.where(), c.heads,
                           c.kv_heads));
  }
  if (c.head_dim % 2 != 0)
    fail_input(fmt::format("{}: head_dim is {}; rotary embedding needs an even one", r.where(), c.head_dim));
  if (c.head_dim > 256) fail_input(fmt::format("{}: head_dim is {}; at most 256 is supported", r.where(), c.head_dim));
}

void read_multipliers(const ConfigReader& r, ModelConfig& c) {
  for (const char* key : {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"})
    r.refuse_null(key);
  c.embedding_scale = r.positive_number("embedding_multiplier", 1);
  c.attention_scale = r.positive_number("attention_multiplier", 1);
  c.branch_scale = r.positive_number("residual_multiplier", 1);
  c.logits_scale = 1 / r.positive_number("logits_scaling", 1);
}

std::vector<int64_t> read_no_window(const ConfigReader& r, const ModelConfig& c) {
  must_be(r, "sliding_window", nullptr, c.architecture);
  const WindowFields f = read_window_fields(r, c.layers, false);
  must_be(r, "use_sliding_window", false, c.architecture);
  check_sliding_types(r, f, 0);
  return std::vector<int64_t>(static_cast<size_t>(c.layers), 0);
}

std::vector<int64_t> read_window_of_all(const ConfigReader& r, const ModelConfig& c) {
  const WindowFields f = read_window_fields(r, c.layers, true);
  if (!f.null && !f.on)
    fail_input(
        fmt::format("{}: 'use_sliding_window' is false, but {} reads only sliding_window, which is {}; set "
                    "that to null, or remove use_sliding_window",
                    r.where(), c.architecture, f.given));
  if (f.size() > 0 && r.has("max_window_layers") && f.first > 0)
    fail_input(
        fmt::format("{}: 'max_window_layers' is {}, but {} has the sliding window in all layers; remove it, or "
                    "set sliding_window to null",
                    r.where(), f.first, c.architecture));
  check_sliding_types(r, f, f.size());
  for (size_t l = 0; f.types && l < f.types->size(); ++l) {
    if (!(*f.types)[l] && f.size() > 0)
      fail_input(
          fmt::format("{}: layer_types[{}] is full_attention, but {} has the sliding window of {} in all layers, "
                      "and transformers does not read its layer_types; remove them, or set sliding_window to "
                      "null",
                      r.where(), l, c.architecture, f.size()));
  }
  return std::vector<int64_t>(static_cast<size_t>(c.layers), f.size());
}

std::vector<int64_t> read_switched_window(const ConfigReader& r, const ModelConfig& c) {
  const WindowFields f = read_window_fields(r, c.layers, false);
  check_sliding_types(r, f, f.size());
  std::vector<int64_t> window;
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool sliding = f.types ? (*f.types)[static_cast<size_t>(l)] : l >= f.first;
    window.push_back(sliding ? f.size() : 0);
  }
  return window;
}

namespace {

void add_delta_net(const ModelConfig& c, TensorList& list) {
  const DeltaNetConfig& d = c.delta_net;
  const int64_t keys = d.key_heads * d.key_dim, values = d.value_heads * d.value_dim;
  using At = DeltaOperand;
  if (d.by_key_head) {
    list.weight(At::in, "linear_attn.in_proj_qkvz", 2 * keys + 2 * values, c.hidden);
    list.weight(At::in, "linear_attn.in_proj_ba", 2 * d.value_heads, c.hidden);
  } else {
    list.weight(At::in, "linear_attn.in_proj_qkv", 2 * keys + values, c.hidden);
    list.weight(At::in, "linear_attn.in_proj_z", values, c.hidden);
    list.weight(At::in, "linear_attn.in_proj_b", d.value_heads, c.hidden);
    list.weight(At::in, "linear_attn.in_proj_a", d.value_heads, c.hidden);
  }
  list.weight(At::conv, "linear_attn.conv1d", 2 * keys + values, d.taps);
  list.tensors.back().role = TensorRole::filter;
  list.row(At::a_log, TensorRole::vector, "linear_attn.A_log", d.value_heads);
  list.tensors.back().init = VectorInit::log_of_uniform;
  list.row(At::dt_bias, TensorRole::bias, "linear_attn.dt_bias", d.value_heads);
  list.tensors.back().init = VectorInit::ones;
  list.row(At::norm, TensorRole::vector, "linear_attn.norm.weight", d.value_dim);
  list.tensors.back().init = VectorInit::ones;
  list.weight(At::out, "linear_attn.out_proj", c.hidden, values);
}

void add_mamba2(const ModelConfig& c, TensorList& list) {
  const Mamba2Config& m = c.mamba2;
  const int64_t width = m.heads * m.head_dim, convolved = width + 2 * m.groups * m.state_dim;
  const int64_t projected = width + convolved + m.heads;
  using At = Mamba2Operand;
  list.weight(At::in, "mamba.in_proj", projected, c.hidden);
  if (m.bias) list.row(At::in_bias, TensorRole::bias, "mamba.in_proj.bias", projected);
  list.weight(At::conv, "mamba.conv1d", convolved, m.taps);
  list.tensors.back().role = TensorRole::filter;
  if (m.conv_bias) list.row(At::conv_bias, TensorRole::bias, "mamba.conv1d.bias", convolved);
  const auto vector = [&](int operand, TensorRole role, const char* name, int64_t size, VectorInit init) {
    list.row(operand, role, name, size);
    list.tensors.back().init = init;
  };
  vector(At::dt_bias, TensorRole::bias, "mamba.dt_bias", m.heads, VectorInit::ones);
  vector(At::a_log, TensorRole::vector, "mamba.A_log", m.heads, VectorInit::log_of_place);
  vector(At::skip, TensorRole::vector, "mamba.D", m.heads, VectorInit::ones);
  if (m.normed) vector(At::norm, TensorRole::vector, "mamba.norm.weight", width, VectorInit::ones);
  list.weight(At::out, "mamba.out_proj", c.hidden, width);
  if (m.bias) list.row(At::out_bias, TensorRole::bias, "mamba.out_proj.bias", c.hidden);
}

void add_gated_conv(const ModelConfig& c, TensorList& list) {
  using At = GatedConvOperand;
  list.weight(At::in, "conv.in_proj", 3 * c.hidden, c.hidden);
  if (c.gated_conv.bias) list.row(At::in_bias, TensorRole::bias, "conv.in_proj.bias", 3 * c.hidden);
  list.weight(At::conv, "conv.conv", c.hidden, c.gated_conv.taps);
  list.tensors.back().role = TensorRole::filter;
  if (c.gated_conv.bias) list.row(At::conv_bias, TensorRole::bias, "conv.conv.bias", c.hidden);
  list.weight(At::out, "conv.out_proj", c.hidden, c.hidden);
  if (c.gated_conv.bias) list.row(At::out_bias, TensorRole::bias, "conv.out_proj.bias", c.hidden);
}

void add_latent_attention(const ModelConfig& c, TensorList& list) {
  const LatentConfig& l = c.latent;
  const int64_t queries = c.heads * (l.plain + l.turning), down_kv = l.kv_rank + l.turning;
  using At = LatentOperand;
  const bool narrow = l.q_rank > 0;
  list.weight(At::down, narrow ? "self_attn.q_a_proj" : "self_attn.q_proj", narrow ? l.q_rank : queries, c.hidden);
  list.weight(At::down, "self_attn.kv_a_proj_with_mqa", down_kv, c.hidden);
  if (c.qkv_bias) {
    list.row(At::down_bias, TensorRole::bias, "self_attn.q_a_proj.bias", l.q_rank);
    list.row(At::down_bias, TensorRole::bias, "self_attn.kv_a_proj_with_mqa.bias", down_kv);
  }
  if (narrow) {
    list.row(At::q_norm, TensorRole::norm, "self_attn.q_a_layernorm.weight", l.q_rank);
    list.weight(At::up_q, "self_attn.q_b_proj", queries, l.q_rank);
  }
  list.row(At::kv_norm, TensorRole::norm, "self_attn.kv_a_layernorm.weight", l.kv_rank);
  list.weight(At::up_kv, "self_attn.kv_b_proj", c.heads * (l.plain + l.value), l.kv_rank);
  list.weight(BlockOperand::o, "self_attn.o_proj", c.hidden, c.heads * l.value);
  if (c.o_bias) list.row(BlockOperand::o_bias, TensorRole::bias, "self_attn.o_proj.bias", c.hidden);
}

void add_attention(const ModelConfig& c, TensorList& list) {
  using At = BlockOperand;
  if (c.attention_gate)
    list.weight(At::gated_q, "self_attn.q_proj", 2 * c.q_dim(), c.hidden);
  else
    list.weight(At::qkv, "self_attn.q_proj", c.q_dim(), c.hidden);
  list.weight(At::qkv, "self_attn.k_proj", c.kv_dim(), c.hidden);
  list.weight(At::qkv, "self_attn.v_proj", c.kv_dim(), c.hidden);
  if (c.qkv_bias) {
    list.row(At::qkv_bias, TensorRole::bias, "self_attn.q_proj.bias", c.q_dim());
    list.row(At::qkv_bias, TensorRole::bias, "self_attn.k_proj.bias", c.kv_dim());
    list.row(At::qkv_bias, TensorRole::bias, "self_attn.v_proj.bias", c.kv_dim());
  }
  if (c.qk_norm) {
    list.row(At::q_norm, TensorRole::norm, "self_attn.q_norm.weight", c.qk_norm_spans ? c.q_dim() : c.head_dim);
    list.row(At::k_norm, TensorRole::norm, "self_attn.k_norm.weight", c.qk_norm_spans ? c.kv_dim() : c.head_dim);
  }
  list.weight(At::o, "self_attn.o_proj", c.hidden, c.q_dim());
  if (c.o_bias) list.row(At::o_bias, TensorRole::bias, "self_attn.o_proj.bias", c.hidden);
}

}  // namespace

std::vector<TensorSpec> attention_tensors(const ModelConfig& c, int64_t layer) {
  std::vector<TensorSpec> tensors;
  TensorList list = list_of(layer, tensors);
  if (c.mixes(layer)) list.row(BlockOperand::input_norm, TensorRole::norm, "input_layernorm.weight", c.hidden);
  if (c.delta_net.in_layer(layer)) add_delta_net(c, list);
  if (c.mamba2.in_layer(layer)) add_mamba2(c, list);
  if (c.gated_conv.in_layer(layer)) add_gated_conv(c, list);
  if (c.attends(layer)) c.latent.kv_rank > 0 ? add_latent_attention(c, list) : add_attention(c, list);
  list.row(BlockOperand::post_norm, TensorRole::norm, "post_attention_layernorm.weight", c.hidden);
  return tensors;
}

std::vector<std::vector<TensorSpec>> dense_tensors(const ModelConfig& c, int64_t layer) {
  std::vector<TensorSpec> tensors = attention_tensors(c, layer);
  TensorList list = list_of(layer, tensors);
  using At = BlockOperand;
  const bool gate = has_gate(c.activation);
  if (gate) list.weight(At::gate_up, "mlp.gate_proj", c.ff, c.hidden);
  list.weight(At::gate_up, "mlp.up_proj", c.ff, c.hidden);
  if (c.mlp_bias) {
    if (gate) list.row(At::gate_up_bias, TensorRole::bias, "mlp.gate_proj.bias", c.ff);
    list.row(At::gate_up_bias, TensorRole::bias, "mlp.up_proj.bias", c.ff);
  }
  list.weight(At::down, "mlp.down_proj", c.hidden, c.ff);
  if (c.mlp_bias) list.row(At::down_bias, TensorRole::bias, "mlp.down_proj.bias", c.hidden);
  return {std::move(tensors)};
}

Block::Mixers attention_of(const ModelConfig& config, const ModelShape& shape, int64_t layer,
                           const LinearTensors& from) {
  Block::Mixers mixers;
  if (config.delta_net.in_layer(layer))
    mixers.push_back(
        std::make_unique<DeltaNet>(config.delta_net, static_cast<float>(config.norm_eps), shape.dtype, from));
  if (config.mamba2.in_layer(layer))
    mixers.push_back(std::make_unique<Mamba2>(Mamba2::Sizes{.config = config.mamba2,
                                                            .norm_eps = static_cast<float>(config.norm_eps),
                                                            .out_scale = config.branch_scale * config.scales.mamba_out,
                                                            .dtype = shape.dtype},
                                              from));
  if (config.gated_conv.in_layer(layer))
    mixers.push_back(std::make_unique<GatedConv>(config.gated_conv, shape.dtype, from));
  if (config.attends(layer) && config.latent.kv_rank > 0)
    mixers.push_back(std::make_unique<LatentAttention>(latent_sizes(config, shape), from));
  else if (config.attends(layer))
    mixers.push_back(std::make_unique<Attention>(attention_sizes(config, shape, layer), from));
  return mixers;
}

std::unique_ptr<const Channel> mlp_of(const ModelConfig& config, const ModelShape& shape, const LinearTensors& from) {
  return std::make_unique<Mlp>(config.activation, shape.dtype, from, config.branch_scale * config.scales.mlp_out,
                               config.scales.mlp_in);
}

std::vector<std::unique_ptr<const Phase>> one_block(const ModelConfig& config, const ModelShape& shape,
                                                    const LinearTensors& from, Block::Mixers mixers,
                                                    Block::Channels channels) {
  std::vector<std::unique_ptr<const Phase>> phases;
  phases.push_back(std::make_unique<Block>(block_shape(config, shape), from, std::move(mixers), std::move(channels)));
  return phases;
}

std::vector<std::unique_ptr<const Phase>> dense_phases(const ModelConfig& config, const ModelShape& shape,
                                                       int64_t layer, std::span<const LayerLayout> records) {
  const LinearTensors from(records.front(), adapters_among(records));
  Block::Channels channels;
  channels.push_back(mlp_of(config, shape, from));
  return one_block(config, shape, from, attention_of(config, shape, layer, from), std::move(channels));
}

void rename_modules(int64_t layer, std::span<const Renamed> names, std::vector<TensorSpec>& tensors) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  for (TensorSpec& tensor : tensors) {
    const std::string_view rest = std::string_view(tensor.name).substr(prefix.size());
    const auto found = std::ranges::find_if(names, [&](const Renamed& name) { return rest.starts_with(name.from); });
    if (found != names.end()) tensor.name = fmt::format("{}{}{}", prefix, found->to, rest.substr(found->from.size()));
  }
}

bool windows_repeat(const ModelConfig& c, int64_t period) {
  for (int64_t l = 0; l < c.layers; ++l) {
    if ((c.window[static_cast<size_t>(l)] > 0) != ((l + 1) % period != 0)) return false;
  }
  return true;
}

std::string heads_that_do_not_fill(const ModelConfig& c) {
  if (c.q_dim() == c.hidden) return "";
  return fmt::format("with heads of {} elements together ({} of {}) and a hidden_size of {}", c.q_dim(), c.heads,
                     c.head_dim, c.hidden);
}

json preset_json(const char* architecture, const char* model_type, const PresetSizes& p) {
  return {{"architectures", {architecture}},  {"model_type", model_type},          {"vocab_size", p.vocab},
          {"hidden_size", p.hidden},          {"intermediate_size", p.ff},         {"num_hidden_layers", p.layers},
          {"num_attention_heads", p.heads},   {"num_key_value_heads", p.kv_heads}, {"hidden_act", "silu"},
          {"max_position_embeddings", 32768}, {"rms_norm_eps", p.norm_eps},        {"initializer_range", 0.02},
          {"rope_theta", p.rope_theta},       {"tie_word_embeddings", p.tied},     {"torch_dtype", "bfloat16"}};
}

}  // namespace megatrain
