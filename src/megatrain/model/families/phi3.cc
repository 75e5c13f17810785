// Phi-3 and Phi-4-mini: q, k and v in one tensor, gate and up in another, longrope, and partly rotated heads.
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

std::vector<double> read_factors(const ConfigReader& r, const char* key, int64_t pairs) {
  const bool listed = r.has(key) && r.at(key).is_array() && std::ssize(r.at(key)) == pairs;
  std::vector<double> factors;
  for (const json& factor : listed ? r.at(key) : json::array()) {
    if (factor.is_number() && factor > 0 && factor <= std::numeric_limits<float>::max())
      factors.push_back(factor.get<double>());
  }
  if (std::ssize(factors) != pairs)
    fail_input(
        fmt::format("{}: '{}' must list {} numbers above 0 that float32 holds, one for each rotated pair of elements",
                    r.where(), key, pairs));
  return factors;
}

// Merges rope_scaling with transformers 5's rope_parameters. A field that is in both must be equal, because versions of
// transformers differ in which one they prefer.
json rope_object(const ConfigReader& r) {
  json rope = r.has("rope_scaling") ? r.at("rope_scaling") : json::object();
  for (const char* key :
       {"rope_theta", "partial_rotary_factor", "rope_parameters", "original_max_position_embeddings"}) {
    if (!r.has(key)) continue;
    const json given = std::string(key) == "rope_parameters" ? r.at(key) : json{{key, r.at(key)}};
    for (const auto& [name, value] : given.items()) {
      if (rope.contains(name) && rope.at(name) != value)
        fail_input(
            fmt::format("{}: '{}' is both {} and {}; transformers versions disagree on which one to use: remove the "
                        "wrong one",
                        r.where(), name, rope.at(name).dump(), value.dump()));
      rope[name] = value;
    }
  }
  return rope;
}

RopeConfig read_phi3_rope(const ConfigReader& model, const ModelConfig& c) {
  const json object = rope_object(model);
  const ConfigReader r(object, model.where() + ": RoPE");
  check_fields_of(r, {"rope_type", "type", "rope_theta", "partial_rotary_factor", "short_factor", "long_factor",
                      "factor", "attention_factor", "original_max_position_embeddings"});
  RopeConfig rope;
  for (const ConfigReader* each : {&model, &r}) {
    for (const char* key : {"rope_theta", "original_max_position_embeddings"}) each->refuse_null(key);
  }
  rope.theta = r.positive_number("rope_theta", 10000.0);
  const double turning = r.positive_number("partial_rotary_factor", 1.0);
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(c.head_dim) * turning);
  if (turning > 1 || rope.rotary_dim % 2 != 0 || rope.rotary_dim == 0)
    fail_input(fmt::format(
        "{}: 'partial_rotary_factor' is {}, so {} of a head's {} elements would be rotated; the number must be even",
        model.where(), turning, rope.rotary_dim, c.head_dim));
  const std::string type = r.string("rope_type", r.string("type", "default"));
  if (r.string("type", type) != type)
    fail_input(fmt::format("{}: 'rope_type' is '{}' and 'type' is '{}'; remove the wrong one", r.where(), type,
                           r.string("type", "")));
  if (type == "default") return rope;
  if (type != "longrope" && type != "su" && type != "yarn")  // older names of longrope, as in transformers
    fail_input(fmt::format("{}: RoPE scaling '{}' is not supported; {} has default and longrope", model.where(), type,
                           c.architecture));
  rope.scaling = RopeScaling::longrope;
  rope.short_factor = read_factors(r, "short_factor", rope.rotary_dim / 2);
  rope.long_factor = read_factors(r, "long_factor", rope.rotary_dim / 2);
  constexpr int64_t kAbsent = 4096;  // transformers' default, whatever the RoPE object says
  const int64_t original = r.positive("original_max_position_embeddings", kAbsent);
  if (!model.has("original_max_position_embeddings") && original != kAbsent)
    fail_input(
        fmt::format("{}: 'original_max_position_embeddings' is {} in the RoPE fields but missing at the top level, "
                    "where transformers uses {}; write it there too",
                    model.where(), original, kAbsent));
  rope.original_max_position = static_cast<double>(original);
  rope.factor = r.positive_number("factor", static_cast<double>(c.max_position) / rope.original_max_position);
  if (original == 1 && rope.factor > 1 && !r.has("attention_factor"))
    fail_input(
        fmt::format("{}: 'original_max_position_embeddings' is 1, whose logarithm longrope's attention_factor divides "
                    "by; correct it, or write an attention_factor",
                    model.where()));
  const double recommended =
      rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_max_position));
  rope.attention_factor = r.positive_number("attention_factor", recommended);
  return rope;
}

void read_phi3(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 4096}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  if (!r.object().contains("pad_token_id")) {  // transformers' default
    c.pad_id = 32000;
    if (c.pad_id >= c.vocab)
      fail_input(
          fmt::format("{}: 'pad_token_id' is missing, and transformers then uses 32000, above vocab_size ({}); set "
                      "it to null or to a token's id",
                      r.where(), c.vocab));
  }
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) must_be(r, key, false, c.architecture);
  for (const char* key : {"resid_pdrop", "embd_pdrop"}) must_be(r, key, 0.0, c.architecture);
  for (const char* key : {"full_attn_mod", "interpolate_factor"}) must_be(r, key, 1, c.architecture);
  for (const char* key : {"use_sliding_window", "max_window_layers", "layer_types"})
    must_be(r, key, nullptr, c.architecture);
  c.rope = read_phi3_rope(r, c);
  const int64_t window = r.has("sliding_window") ? r.positive("sliding_window") : 0;
  c.window.assign(static_cast<size_t>(c.layers), window);
}

std::vector<std::vector<TensorSpec>> phi3_tensors(const ModelConfig& c, int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const auto matrix = [&](int operand, const char* module, int64_t rows, int64_t cols) {
    return TensorSpec{
        .name = fmt::format("{}{}.weight", prefix, module), .rows = rows, .cols = cols, .operand = operand};
  };
  const auto norm = [&](int operand, const char* module) {
    TensorSpec tensor = matrix(operand, module, 1, c.hidden);
    tensor.role = TensorRole::norm;
    return tensor;
  };
  using At = BlockOperand;
  return {{norm(At::input_norm, "input_layernorm"), matrix(At::qkv, "self_attn.qkv_proj", c.qkv_dim(), c.hidden),
           matrix(At::o, "self_attn.o_proj", c.hidden, c.q_dim()), norm(At::post_norm, "post_attention_layernorm"),
           matrix(At::gate_up, "mlp.gate_up_proj", 2 * c.ff, c.hidden),
           matrix(At::down, "mlp.down_proj", c.hidden, c.ff)}};
}

}  // namespace

Family phi3_family() {
  return {.architecture = "Phi3ForCausalLM",
          .model_type = "phi3",
          .fields = {"partial_rotary_factor", "resid_pdrop", "embd_pdrop", "lm_head_bias", "full_attn_mod",
                     "interpolate_factor"},
          .read = read_phi3,
          .tensors = phi3_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "phi3", .unlike = heads_that_do_not_fill, .keys = [](const ModelConfig&) {
                                  return std::vector<LlamaCpp::Key>{{"attention.sliding_window", int64_t{0}}};
                                }}};
}

}  // namespace megatrain
