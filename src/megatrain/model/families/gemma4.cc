// Gemma 4, text only. Like Gemma 3 it has norms before and after each branch and local layers with a sliding window.
// Global layers have larger heads, and values that may be made of the keys. A layer's output is multiplied by a stored
// number. Some models have experts beside the MLP of each layer. In others (E2B, E4B) the last layers read the keys and
// values of earlier ones, and every token gives something of its own to each layer.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/channels/experts.h"
#include "megatrain/model/layers/channels/mlp.h"
#include "megatrain/model/layers/channels/normed.h"
#include "megatrain/model/layers/layer_inputs.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr const char* kPerLayer = "per_layer_config";

void refuse_other(const ConfigReader& r, const char* key, const json& supported, const char* what) {
  if (!r.has(key) || r.at(key) == supported) return;
  fail_input(fmt::format("{}: '{}' is {}; megatrain supports only {} here: {}", r.where(), key, r.at(key).dump(),
                         supported.dump(), what));
}

// The window of each layer. The last layer is always global.
std::vector<int64_t> read_gemma4_windows(const ConfigReader& r, int64_t layers, int64_t absent_window) {
  constexpr int64_t kPattern = 6;
  std::vector<bool> local;
  for (int64_t l = 0; l < layers; ++l) local.push_back((l + 1) % kPattern != 0);
  local = read_layer_types(r, layers).value_or(local);
  local.back() = false;
  r.refuse_null("sliding_window");
  const int64_t window = r.positive("sliding_window", absent_window);
  std::vector<int64_t> windows;
  for (const bool is_local : local) windows.push_back(is_local ? window : 0);
  return windows;
}

// What per_layer_config says of a layer, as transformers writes it since 5.20: sizes that differ from the model's. Its
// keys are numbers of layers, of equal width ("05", "11").
HeadSizes read_layer_sizes(const ConfigReader& r, HeadSizes sizes, int64_t layer) {
  const json& all = r.at(kPerLayer);
  const auto found = std::ranges::find_if(all.items(), [&](const auto& item) {
    int64_t number = -1;
    const std::string& key = item.key();
    const auto end = std::from_chars(key.data(), key.data() + key.size(), number).ptr;
    return end == key.data() + key.size() && number == layer;
  });
  if (found == all.items().end()) return sizes;
  const ConfigReader own(found.value(), fmt::format("{}: {}.{}", r.where(), kPerLayer, found.key()));
  check_fields_of(own, {"head_dim", "num_key_value_heads"});
  sizes.head_dim = own.positive("head_dim", sizes.head_dim);
  sizes.kv_heads = own.positive("num_key_value_heads", sizes.kv_heads);
  return sizes;
}

bool same_sizes(const HeadSizes& a, const HeadSizes& b) { return a.kv_heads == b.kv_heads && a.head_dim == b.head_dim; }

// The heads of global layers. transformers does not read the model's two fields beside per_layer_config.
HeadSizes read_full_heads(const ConfigReader& r, const ModelConfig& c) {
  const bool keys_are_values = r.boolean("attention_k_eq_v", false);
  const HeadSizes local{.kv_heads = c.kv_heads, .head_dim = c.head_dim};
  HeadSizes full = local;
  if (!r.has(kPerLayer)) {
    full.head_dim = r.positive("global_head_dim", 512);
    if (keys_are_values) full.kv_heads = r.positive("num_global_key_value_heads", c.kv_heads);
  } else {
    if (!r.at(kPerLayer).is_object())
      fail_input(fmt::format("{}: '{}' is {}; expected an object of layers", r.where(), kPerLayer,
                             r.at(kPerLayer).dump().substr(0, 80)));
    full = read_layer_sizes(r, local, c.layers - 1);
    for (int64_t l = 0; l < c.layers; ++l) {
      const bool is_local = c.window[static_cast<size_t>(l)] > 0;
      if (!same_sizes(read_layer_sizes(r, local, l), is_local ? local : full))
        fail_input(
            fmt::format("{}: {}.{} differs from other layers of its kind; layers of a kind must have the same "
                        "heads",
                        r.where(), kPerLayer, l));
    }
  }
  full.keys_are_values = keys_are_values;
  constexpr int64_t kLongestHead = 512;
  if (full.head_dim % 2 != 0 || full.head_dim > kLongestHead || c.heads % full.kv_heads != 0)
    fail_input(
        fmt::format("{}: global layers have {} key heads of {} elements; expected an even size of at most {}, and a "
                    "number that divides num_attention_heads ({})",
                    r.where(), full.kv_heads, full.head_dim, kLongestHead, c.heads));
  return full;
}

// The RoPE of one kind of layers; null means the default of that kind.
RopeConfig read_gemma4_rope(const ConfigReader& r, const char* kind, const json& absent, int64_t max_position) {
  json parameters = absent;
  if (r.has("rope_parameters")) {
    const json& all = r.at("rope_parameters");
    if (!all.is_object() || !all.contains(kind) || !all.at(kind).is_object() || all.size() != 2)
      fail_input(fmt::format("{}: 'rope_parameters' is {}; it must hold 'full_attention' and 'sliding_attention'",
                             r.where(), all.dump()));
    parameters = all.at(kind);
  }
  const ConfigReader own(parameters, fmt::format("{}: rope_parameters.{}", r.where(), kind));
  for (const char* key : {"rope_type", "rope_theta", "partial_rotary_factor"}) own.refuse_null(key);
  if (own.string("rope_type", "default") != "proportional") {
    const json model = {{"rope_parameters", parameters}};
    return parse_rope(ConfigReader(model, own.where()), max_position);
  }
  check_fields_of(own, {"rope_type", "rope_theta", "partial_rotary_factor", "factor"});
  RopeConfig rope;
  rope.scaling = RopeScaling::proportional;
  rope.theta = own.positive_number("rope_theta", absent.at("rope_theta").get<double>());
  rope.factor = own.positive_number("factor", 1.0);
  rope.proportion = own.positive_number("partial_rotary_factor", 1.0);
  if (rope.proportion > 1)
    fail_input(fmt::format("{}: 'partial_rotary_factor' is {}; expected at most 1", own.where(), rope.proportion));
  return rope;
}

void read_gemma4_experts(const ConfigReader& r, ModelConfig& c) {
  if (!r.boolean("enable_moe_block", false)) return;
  ExpertsConfig& e = c.experts;
  e.count = r.positive("num_experts", 0, int64_t{1} << 14);
  e.chosen = r.positive("top_k_experts", 0);
  e.ff = r.positive("moe_intermediate_size", 0, kMaxWidth);
  if (e.chosen > e.count)
    fail_input(fmt::format("{}: 'top_k_experts' is {}, but there are only {} experts", r.where(), e.chosen, e.count));
  e.layers.assign(static_cast<size_t>(c.layers), true);
  e.gate.activation = c.activation;
  e.beside_mlp = true;
}

// The last layers, which read the keys and values of earlier ones.
void read_readers(const ConfigReader& r, ModelConfig& c) {
  c.kv_readers = r.has("num_kv_shared_layers") ? r.not_negative("num_kv_shared_layers", 0) : 0;
  c.wide_readers = r.boolean("use_double_wide_mlp", false);
  if (c.kv_readers == 0) return;
  if (c.kv_readers >= c.layers)
    fail_input(fmt::format("{}: 'num_kv_shared_layers' is {}; it must be less than num_hidden_layers ({})", r.where(),
                           c.kv_readers, c.layers));
  for (int64_t layer = c.layers - c.kv_readers; layer < c.layers; ++layer) {
    if (c.kv_source(layer) >= 0) continue;
    fail_input(
        fmt::format("{}: layer {} shares keys and values ('num_kv_shared_layers'), but no layer before the {} that do "
                    "is of its kind ({})",
                    r.where(), layer, c.kv_readers,
                    c.window[static_cast<size_t>(layer)] > 0 ? "sliding_attention" : "full_attention"));
  }
}

void read_layer_inputs(const ConfigReader& r, ModelConfig& c) {
  constexpr int64_t kAbsent = 256, kAbsentVocab = 262144;
  c.layer_input = r.not_negative("hidden_size_per_layer_input", kAbsent);
  if (c.layer_input == 0) return;
  c.layer_input_cols = c.layers * c.layer_input;
  const int64_t vocab = r.positive("vocab_size_per_layer_input", kAbsentVocab);
  if (vocab != c.vocab)
    fail_input(
        fmt::format("{}: 'vocab_size_per_layer_input' is {} and vocab_size is {}; every token needs a row of both "
                    "tables, so they must be equal",
                    r.where(), vocab, c.vocab));
  if (r.boolean("enable_moe_block", false))
    fail_input(r.where() + ": 'hidden_size_per_layer_input' must be 0 in a model with experts");
}

// What transformers takes for absent fields.
struct AbsentSizes {
  int64_t window, max_position;
};

void read_gemma4_part(const ConfigReader& r, const AbsentSizes& absent, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 4, .null_kv_heads = false, .head_dim = 256, .max_position = absent.max_position}, c);
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  refuse_other(r, "hidden_activation", "gelu_pytorch_tanh", "other activations are not supported");
  refuse_other(r, "attention_bias", false, "its matmuls have no biases");
  refuse_other(r, "use_bidirectional_attention", "vision", "text is trained with causal attention");
  for (const char* key : {"mlp_bias", "use_sliding_window", "max_window_layers", "rope_scaling", "rope_theta"})
    must_be(r, key, nullptr, c.architecture);

  c.qk_norm = c.v_norm = true;
  c.activation = Activation::gelu_tanh;
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
  c.attention_scale = 1;
  c.logits_cap = r.has("final_logit_softcapping") ? r.positive_number("final_logit_softcapping", 1) : 0;
  c.window = read_gemma4_windows(r, c.layers, absent.window);
  c.full_heads = read_full_heads(r, c);
  read_readers(r, c);
  c.rope = read_gemma4_rope(r, "full_attention",
                            {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}},
                            c.max_position);
  c.window_rope =
      read_gemma4_rope(r, "sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}, c.max_position);
}

void read_gemma4(const ConfigReader& r, ModelConfig& c) {
  read_gemma4_part(r, {.window = 512, .max_position = 131072}, c);
  read_layer_inputs(r, c);
  read_gemma4_experts(r, c);
}

void read_gemma4_unified(const ConfigReader& r, ModelConfig& c) {
  read_gemma4_part(r, {.window = 1024, .max_position = 262144}, c);
}

std::vector<std::string> gemma4_fields(std::vector<std::string> more) {
  for (const char* field :
       {"hidden_activation", "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v", "per_layer_config",
        "num_kv_shared_layers", "use_double_wide_mlp", "final_logit_softcapping", "use_bidirectional_attention"})
    more.emplace_back(field);
  return more;
}

// The names of a layer's tensors, with its prefix.
struct LayerTensors {
  std::string prefix;
  std::vector<TensorSpec> tensors = {};

  void matrix(int operand, const char* module, int64_t rows, int64_t cols) {
    tensors.push_back(
        {.name = fmt::format("{}{}.weight", prefix, module), .rows = rows, .cols = cols, .operand = operand});
  }
  void vector(int operand, const char* name, int64_t size, TensorRole role = TensorRole::norm) {
    tensors.push_back({.name = prefix + name,
                       .rows = 1,
                       .cols = size,
                       .role = role,
                       .operand = operand,
                       .trainable = role != TensorRole::buffer,
                       .init = role == TensorRole::buffer ? VectorInit::ones : VectorInit::by_role});
  }
};

// One expert. Files and transformers hold all of a layer in two tensors, gate rows before up rows.
std::vector<TensorSpec> gemma4_expert(const ModelConfig& c, const std::string& prefix, int64_t index) {
  const int64_t ff = c.experts.ff;
  const auto part = [&](int operand, const char* module, const char* of, int64_t all, int64_t first, int64_t rows,
                        int64_t cols) {
    const std::string whole = fmt::format("{}experts.{}", prefix, of);
    return TensorSpec{
        .name = fmt::format("{}experts.{}.{}.weight", prefix, index, module),
        .rows = rows,
        .cols = cols,
        .operand = operand,
        .stored = {.name = whole, .slices = c.experts.count, .index = index, .rows = all, .first_row = first},
        .parameter = {.name = whole, .rows = all, .first_row = first}};
  };
  return {part(BlockOperand::expert_gate_up, "gate_proj", "gate_up_proj", 2 * ff, 0, ff, c.hidden),
          part(BlockOperand::expert_gate_up, "up_proj", "gate_up_proj", 2 * ff, ff, ff, c.hidden),
          part(BlockOperand::expert_down, "down_proj", "down_proj", c.hidden, 0, c.hidden, ff)};
}

std::vector<std::vector<TensorSpec>> gemma4_tensors(const ModelConfig& c, int64_t layer) {
  using At = BlockOperand;
  const HeadSizes heads = c.heads_of(layer);
  const int64_t q = c.heads * heads.head_dim, kv = heads.kv_heads * heads.head_dim;
  const bool moe = c.experts.in_layer(layer);
  LayerTensors list{fmt::format("model.layers.{}.", layer)};
  list.vector(At::input_norm, "input_layernorm.weight", c.hidden);
  list.matrix(At::qkv, "self_attn.q_proj", q, c.hidden);
  const bool own_kv = c.kv_source(layer) < 0;
  if (own_kv) list.matrix(At::qkv, "self_attn.k_proj", kv, c.hidden);
  if (own_kv && !heads.keys_are_values) list.matrix(At::qkv, "self_attn.v_proj", kv, c.hidden);
  list.vector(At::q_norm, "self_attn.q_norm.weight", heads.head_dim);
  if (own_kv) list.vector(At::k_norm, "self_attn.k_norm.weight", heads.head_dim);
  list.matrix(At::o, "self_attn.o_proj", c.hidden, q);
  list.vector(At::o_norm, "post_attention_layernorm.weight", c.hidden);
  list.vector(moe ? At::mlp_norm : At::post_norm, "pre_feedforward_layernorm.weight", c.hidden);
  const int64_t ff = c.ff_of(layer);
  list.matrix(At::gate_up, "mlp.gate_proj", ff, c.hidden);
  list.matrix(At::gate_up, "mlp.up_proj", ff, c.hidden);
  list.matrix(At::down, "mlp.down_proj", c.hidden, ff);
  list.vector(At::down_norm, "post_feedforward_layernorm.weight", c.hidden);
  if (c.layer_input == 0) list.vector(At::out_scale, "layer_scalar", 1, TensorRole::buffer);
  if (!moe) return {std::move(list.tensors)};
  list.vector(At::mlp_out_norm, "post_feedforward_layernorm_1.weight", c.hidden);
  list.vector(At::experts_norm, "pre_feedforward_layernorm_2.weight", c.hidden);
  list.vector(At::experts_out_norm, "post_feedforward_layernorm_2.weight", c.hidden);
  list.vector(At::router_norm, "router.scale", c.hidden);
  list.matrix(At::router_linear, "router.proj", c.experts.count, c.hidden);
  list.vector(At::expert_factors, "router.per_expert_scale", c.experts.count);
  std::vector<std::vector<TensorSpec>> lists = {std::move(list.tensors)};
  for (int64_t index = 0; index < c.experts.count; ++index) lists.push_back(gemma4_expert(c, list.prefix, index));
  return lists;
}

// What tokens give to this layer and, in layer 0, what makes that for all layers.
std::vector<std::vector<TensorSpec>> gemma4_more_tensors(const ModelConfig& c, int64_t layer) {
  using At = LayerInputOperand;
  if (c.layer_input == 0) return {};
  LayerTensors list{fmt::format("model.layers.{}.", layer)};
  list.matrix(At::gate, "per_layer_input_gate", c.layer_input, c.hidden);
  list.matrix(At::out, "per_layer_projection", c.hidden, c.layer_input);
  list.vector(At::out_norm, "post_per_layer_input_norm.weight", c.hidden);
  list.vector(At::factor, "layer_scalar", 1, TensorRole::buffer);
  if (layer > 0) return {std::move(list.tensors)};
  LayerTensors all{"model."};
  all.matrix(At::project, "per_layer_model_projection", c.layer_input_cols, c.hidden);
  all.vector(At::project_norm, "per_layer_projection_norm.weight", c.layer_input);
  return {std::move(list.tensors),
          std::move(all.tensors),
          {{.name = "model.embed_tokens_per_layer.weight",
            .rows = c.vocab,
            .cols = c.layer_input_cols,
            .role = TensorRole::embedding}}};
}

// A record among a layer's, and its adapters if they follow it.
struct FoundRecord {
  FoundRecord(std::span<const LayerLayout> all, int64_t index)
      : at{.weights = index}, tensors(all[static_cast<size_t>(index)]) {
    if (index + 1 == std::ssize(all) || !all[static_cast<size_t>(index + 1)].is_adapter()) return;
    at.adapters = index + 1;
    tensors.adapters = &all[static_cast<size_t>(index + 1)];
  }
  int64_t end() const { return at.adapters.value_or(at.weights) + 1; }

  LayerInputRecords at;
  LinearTensors tensors;
};

std::vector<std::unique_ptr<const Phase>> dense_gemma4_phases(const ModelConfig& config, const ModelShape& shape,
                                                              int64_t layer, std::span<const LayerLayout> records) {
  const FoundRecord block(records, 0);
  std::vector<std::unique_ptr<const Phase>> phases =
      dense_phases(config, shape, layer, records.first(static_cast<size_t>(block.end())));
  if (config.layer_input == 0) return phases;
  const FoundRecord input(records, block.end());
  phases.push_back(std::make_unique<LayerInput>(config, shape, layer, input.tensors, input.at));
  if (layer > 0) return phases;
  FoundRecord inputs(records, input.end());
  inputs.at.table = inputs.end();
  phases.insert(phases.begin(), std::make_unique<LayerInputs>(config, shape, inputs.tensors, inputs.at));
  return phases;
}

std::string gemma4_kind(const ModelConfig& config, int64_t layer) {
  std::string kind = attention_kind(config, layer);
  if (config.kv_source(layer) >= 0) kind += " that reads keys";
  if (config.gives_kv(layer)) kind += " that shares keys";
  if (config.layer_input > 0 && layer == 0) kind += ", first";
  return kind;
}

std::vector<std::unique_ptr<const Phase>> gemma4_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records) {
  if (!config.experts.in_layer(layer)) return dense_gemma4_phases(config, shape, layer, records);
  using At = BlockOperand;
  const LinearTensors from(records.front(), adapters_among(records));
  const auto own = records.subspan(1, records.size() - (from.adapters ? 2 : 1));
  const NormShape norm = norm_shape(config);
  const auto normed = [&](std::unique_ptr<const Channel> channel, int before, int after) {
    return std::make_unique<Normed>(std::move(channel), Norm(from.record, before, norm), Norm(from.record, after, norm),
                                    shape.dtype);
  };
  Block::Channels channels;
  channels.push_back(
      normed(std::make_unique<Mlp>(config.activation, shape.dtype, from), At::mlp_norm, At::mlp_out_norm));
  channels.push_back(normed(
      std::make_unique<Experts>(config.experts, shape.dtype,
                                Experts::Records{.first = from, .groups = own.first(1), .adapters = own.subspan(1)},
                                norm),
      At::experts_norm, At::experts_out_norm));
  return one_block(config, shape, from, attention_of(config, shape, layer, from), std::move(channels));
}

struct Gemma4Sizes {
  int64_t hidden, layers, ff, heads, kv_heads, full_kv_heads, experts;
};

Family::Preset gemma4_preset(const char* name, const Gemma4Sizes& p) {
  json config = preset_json("Gemma4ForCausalLM", "gemma4_text",
                            {p.hidden, p.ff, p.layers, p.heads, p.kv_heads, 262144, true, 1e-6, 1e6});
  for (const char* key : {"hidden_act", "rope_theta"}) config.erase(key);
  config.update({{"hidden_activation", "gelu_pytorch_tanh"},
                 {"head_dim", 256},
                 {"global_head_dim", 512},
                 {"num_global_key_value_heads", p.full_kv_heads},
                 {"attention_k_eq_v", true},
                 {"sliding_window", 1024},
                 {"max_position_embeddings", 262144},
                 {"final_logit_softcapping", 30.0},
                 {"hidden_size_per_layer_input", 0},
                 {"num_kv_shared_layers", 0},
                 {"enable_moe_block", p.experts > 0}});
  if (p.experts > 0) config.update({{"num_experts", p.experts}, {"top_k_experts", 8}, {"moe_intermediate_size", 704}});
  return {name, config};
}

// What transformers takes where text_config lacks these fields.
json absent_in_whole() {
  return {{"vocab_size", 262144},
          {"hidden_size", 2304},
          {"intermediate_size", 9216},
          {"num_hidden_layers", 30},
          {"num_attention_heads", 8}};
}

}  // namespace

Family gemma4_family() {
  return {.architecture = "Gemma4ForCausalLM",
          .model_type = "gemma4_text",
          .fields = gemma4_fields({"hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block",
                                   "num_experts", "top_k_experts", "moe_intermediate_size"}),
          .read = read_gemma4,
          .tensors = gemma4_tensors,
          .phases = gemma4_phases,
          .more_tensors = gemma4_more_tensors,
          .kind = gemma4_kind,
          .presets = {gemma4_preset("gemma4-31b", {5376, 60, 21504, 32, 16, 4, 0}),
                      gemma4_preset("gemma4-26b-a4b", {2816, 30, 2112, 16, 8, 2, 128})},
          .part_of = {{.architecture = "Gemma4ForConditionalGeneration",
                       .model_type = "gemma4",
                       .text_type = "gemma4_text",
                       .absent = absent_in_whole()}}};
}

// The 12B, whose images and sounds enter without encoders.
Family gemma4_unified_family() {
  return {.architecture = "Gemma4UnifiedForCausalLM",
          .model_type = "gemma4_unified_text",
          .fields = gemma4_fields({}),
          .read = read_gemma4_unified,
          .tensors = gemma4_tensors,
          .phases = gemma4_phases,
          .kind = gemma4_kind,
          .part_of = {{.architecture = "Gemma4UnifiedForConditionalGeneration",
                       .model_type = "gemma4_unified",
                       .text_type = "gemma4_unified_text",
                       .absent = absent_in_whole()}}};
}

}  // namespace megatrain
