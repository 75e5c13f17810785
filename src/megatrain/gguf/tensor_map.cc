#include "megatrain/gguf/tensor_map.h"

#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/layers/rope_table.h"
#include "megatrain/gguf/architecture.h"
#include "megatrain/model/stored_tensors.h"

namespace megatrain {
namespace {

struct Place {
  std::string name;     // in the GGUF file
  bool expert = false;  // stacked with the other experts of the layer
};

// By the name without "model.layers.N." and, for experts, without their number.
std::optional<Place> place_in_layer(const LlamaCpp& family, const std::string& name) {
  static const std::map<std::string, Place> common = {
      {"input_layernorm.weight", {"attn_norm.weight"}},
      {"self_attn.q_proj.weight", {"attn_q.weight"}},
      {"self_attn.k_proj.weight", {"attn_k.weight"}},
      {"self_attn.v_proj.weight", {"attn_v.weight"}},
      {"self_attn.qkv_proj.weight", {"attn_qkv.weight"}},
      {"self_attn.q_proj.bias", {"attn_q.bias"}},
      {"self_attn.k_proj.bias", {"attn_k.bias"}},
      {"self_attn.v_proj.bias", {"attn_v.bias"}},
      {"self_attn.o_proj.weight", {"attn_output.weight"}},
      {"self_attn.o_proj.bias", {"attn_output.bias"}},
      {"self_attn.q_norm.weight", {"attn_q_norm.weight"}},
      {"self_attn.k_norm.weight", {"attn_k_norm.weight"}},
      {"self_attn.sinks", {"attn_sinks.weight"}},
      {"post_attention_layernorm.weight", {"ffn_norm.weight"}},
      {"mlp.gate_proj.weight", {"ffn_gate.weight"}},
      {"mlp.up_proj.weight", {"ffn_up.weight"}},
      {"mlp.down_proj.weight", {"ffn_down.weight"}},
      {"mlp.gate_proj.bias", {"ffn_gate.bias"}},
      {"mlp.up_proj.bias", {"ffn_up.bias"}},
      {"mlp.down_proj.bias", {"ffn_down.bias"}},
      {"mlp.gate_up_proj.weight", {"ffn_up.weight"}},
      {"mlp.gate.weight", {"ffn_gate_inp.weight"}},
      {"mlp.router.weight", {"ffn_gate_inp.weight"}},
      {"mlp.router.bias", {"ffn_gate_inp.bias"}},
      {"block_sparse_moe.gate.weight", {"ffn_gate_inp.weight"}},
      {"mlp.experts.gate_proj.weight", {"ffn_gate_exps.weight", true}},
      {"mlp.experts.up_proj.weight", {"ffn_up_exps.weight", true}},
      {"mlp.experts.down_proj.weight", {"ffn_down_exps.weight", true}},
      {"mlp.experts.gate_proj.bias", {"ffn_gate_exps.bias", true}},
      {"mlp.experts.up_proj.bias", {"ffn_up_exps.bias", true}},
      {"mlp.experts.down_proj.bias", {"ffn_down_exps.bias", true}},
      {"block_sparse_moe.experts.w1.weight", {"ffn_gate_exps.weight", true}},
      {"block_sparse_moe.experts.w3.weight", {"ffn_up_exps.weight", true}},
      {"block_sparse_moe.experts.w2.weight", {"ffn_down_exps.weight", true}},
  };
  if (const auto own = family.tensors.find(name); own != family.tensors.end()) return Place{own->second};
  const auto found = common.find(name);
  return found == common.end() ? std::nullopt : std::optional(found->second);
}

// Removes "N." from the start of `text` and returns N; -1 if there is none.
int64_t take_number(std::string& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto used = static_cast<size_t>(end - text.data());
  if (error != std::errc() || used >= text.size() || text[used] != '.') return -1;
  text.erase(0, used + 1);
  return number;
}

Place place_of(const LlamaCpp& family, const std::string& name) {
  static const std::map<std::string, std::string> outside = {{"model.embed_tokens.weight", "token_embd.weight"},
                                                             {"model.norm.weight", "output_norm.weight"},
                                                             {"lm_head.weight", "output.weight"}};
  if (const auto found = outside.find(name); found != outside.end()) return {found->second};
  constexpr std::string_view kLayers = "model.layers.", kExperts = ".experts.";
  if (name.starts_with(kLayers)) {
    std::string rest = name.substr(kLayers.size());
    const int64_t layer = take_number(rest);
    if (const size_t experts = rest.find(kExperts); experts != std::string::npos) {
      std::string behind = rest.substr(experts + kExperts.size());
      if (take_number(behind) >= 0) rest = rest.substr(0, experts + kExperts.size()) + behind;
    }
    if (const std::optional<Place> place = place_in_layer(family, rest); place && layer >= 0)
      return {fmt::format("blk.{}.{}", layer, place->name), place->expert};
  }
  fail_input(
      fmt::format("the tensor {} has no place in llama.cpp's architecture {}, so the model cannot be exported to "
                  "GGUF",
                  name, family.name));
}

bool holds(const std::string& name, std::string_view part) { return name.find(part) != std::string::npos; }

// llama3's RoPE scaling as factors by which llama.cpp divides its own frequencies.
std::vector<float> factors_of_llama3(const ModelConfig& c) {
  RopeConfig plain = c.rope;
  plain.scaling = RopeScaling::none;
  const std::vector<double> own = rope_frequencies(plain, c.head_dim), scaled = rope_frequencies(c.rope, c.head_dim);
  std::vector<float> factors;
  for (size_t i = 0; i < own.size(); ++i) factors.push_back(static_cast<float>(own[i] / scaled[i]));
  return factors;
}

GgufTensor of_values(const char* name, std::vector<float> values) {
  GgufTensor tensor;
  tensor.entry = {name, {std::ssize(values)}, GgufType::f32};
  tensor.values = std::move(values);
  return tensor;
}

// The n of GgufTensor::pair_rows for a tensor of this name; 0: its rows keep their order.
int64_t pair_rows_of(const ModelConfig& config, const LlamaCpp& family, const std::string& name) {
  return family.is_llama && (holds(name, "attn_q.") || holds(name, "attn_k.")) ? config.head_dim : 0;
}

std::vector<float> as_floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

void add_rope_tensors(const ModelConfig& c, const LlamaCpp& family, std::vector<GgufTensor>& tensors) {
  if (c.rope.scaling == RopeScaling::longrope) {
    tensors.push_back(of_values("rope_factors_long.weight", as_floats(c.rope.long_factor)));
    tensors.push_back(of_values("rope_factors_short.weight", as_floats(c.rope.short_factor)));
  }
  if (c.rope.scaling != RopeScaling::llama3) return;
  if (!family.is_llama && !family.llama3_rope)
    fail_input(
        fmt::format("a {} with RoPE scaled as Llama 3 does cannot be exported to GGUF: llama.cpp has that for other "
                    "architectures",
                    c.architecture));
  tensors.push_back(of_values("rope_freqs.weight", factors_of_llama3(c)));
}

}  // namespace

std::vector<GgufTensor> gguf_tensors(const ModelConfig& c, const std::vector<const TensorSpec*>& specs, GgufType type) {
  const LlamaCpp& family = gguf_family(c);
  std::vector<GgufTensor> tensors;
  std::map<std::string, size_t> joined;  // stacked expert tensors by name
  for (const TensorSpec* spec : specs) {
    const Place place = place_of(family, spec->name);
    if (const auto found = joined.find(place.name); found != joined.end()) {
      GgufTensor& whole = tensors[found->second];
      ensure(place.expert && whole.parts.front()->elements() == spec->elements(), "only experts share a tensor's name");
      whole.entry.shape.front()++;
      whole.parts.push_back(spec);
      continue;
    }
    joined[place.name] = tensors.size();
    GgufTensor tensor;
    std::vector<int64_t> shape = tensor_shape(*spec);
    if (place.expert) shape.insert(shape.begin(), 1);
    const bool kept = spec->is_vector() || holds(place.name, "ffn_gate_inp");
    tensor.entry = {place.name, shape, kept ? GgufType::f32 : type_for_rows(type, spec->cols)};
    tensor.parts = {spec};
    if (spec->role == TensorRole::norm) tensor.add = static_cast<float>(c.norm_offset);
    tensor.pair_rows = pair_rows_of(c, family, place.name);
    tensors.push_back(std::move(tensor));
  }
  add_rope_tensors(c, family, tensors);
  return tensors;
}

int64_t row_of_pairs(int64_t row, int64_t rows) {
  const int64_t head = row / rows * rows, within = row % rows;
  return head + within % 2 * (rows / 2) + within / 2;
}

GgufTensor gguf_adapter_tensor(const ModelConfig& c, const TensorSpec& half, GgufType type) {
  const LlamaCpp& family = gguf_family(c);
  const bool is_b = half.role == TensorRole::adapter_out;
  const size_t end = half.name.rfind(is_b ? ".lora_B" : ".lora_A");
  const Place place = place_of(family, half.name.substr(0, end) + ".weight");
  GgufTensor tensor;
  tensor.entry = {place.name + (is_b ? ".lora_b" : ".lora_a"), tensor_shape(half), type_for_rows(type, half.cols)};
  tensor.parts = {&half};
  if (is_b) tensor.pair_rows = pair_rows_of(c, family, place.name);
  return tensor;
}

}  // namespace megatrain
