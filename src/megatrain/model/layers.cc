#include "megatrain/model/layers.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/rng.h"

namespace megatrain {

namespace {

TensorSpec weight(std::string name, int64_t rows, int64_t cols, bool fused = false) {
  return {.name = std::move(name), .rows = rows, .cols = cols, .decay = true, .fused = fused};
}
TensorSpec vector_tensor(std::string name, int64_t size, bool fused = false) {
  return {.name = std::move(name), .rows = 1, .cols = size, .vector = true, .fused = fused};
}

int64_t offset_of(const LayerLayout& layout, const std::string& name) {
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.name == name) return tensor.offset;
  }
  return -1;
}

// By the end of its name, which says what it is in any block; null: the layer has none.
const TensorSpec* find_tensor(const LayerLayout& layout, const std::string& name) {
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.name.ends_with(name)) return &tensor;
  }
  return nullptr;
}

int64_t gradient_of(const LayerLayout& layout, const std::string& name) {
  const TensorSpec* tensor = find_tensor(layout, name);
  return tensor ? tensor->state_offset : -1;
}

// Of the product whose weight the named modules' weights are, one after the other.
std::vector<LinearGradient> linear_gradients(const LayerLayout& layout, std::initializer_list<const char*> modules) {
  std::vector<LinearGradient> parts;
  int64_t begin = 0;
  bool extends = false;  // the last part ends where this module begins
  for (const char* module : modules) {
    const TensorSpec& weight = *find_tensor(layout, std::string(module) + ".weight");
    const LinearGradient part{.begin = begin,
                              .rows = weight.rows,
                              .weight = weight.state_offset,
                              .bias = gradient_of(layout, std::string(module) + ".bias")};
    begin += weight.rows;
    const auto follows = [](int64_t before, int64_t elements, int64_t here) {
      return before < 0 ? here < 0 : here == before + elements;
    };
    if (part.weight < 0 && part.bias < 0) {
      extends = false;
    } else if (extends && follows(parts.back().weight, parts.back().rows * weight.cols, part.weight) &&
               follows(parts.back().bias, parts.back().rows, part.bias)) {
      parts.back().rows += part.rows;
    } else {
      parts.push_back(part);
      extends = true;
    }
  }
  return parts;
}

}  // namespace

LayerLayout embedding_layout(const ModelConfig& c) {
  return make_layout({weight("model.embed_tokens.weight", c.vocab, c.hidden)});
}

LayerLayout block_layout(const ModelConfig& c, int64_t block) {
  const std::string p = fmt::format("model.layers.{}.", block);
  std::vector<TensorSpec> t;
  t.push_back(vector_tensor(p + "input_layernorm.weight", c.hidden));
  t.push_back(weight(p + "self_attn.q_proj.weight", c.q_dim(), c.hidden));
  t.push_back(weight(p + "self_attn.k_proj.weight", c.kv_dim(), c.hidden, true));
  t.push_back(weight(p + "self_attn.v_proj.weight", c.kv_dim(), c.hidden, true));
  if (c.qkv_bias) {
    t.push_back(vector_tensor(p + "self_attn.q_proj.bias", c.q_dim()));
    t.push_back(vector_tensor(p + "self_attn.k_proj.bias", c.kv_dim(), true));
    t.push_back(vector_tensor(p + "self_attn.v_proj.bias", c.kv_dim(), true));
  }
  if (c.qk_norm) {
    t.push_back(vector_tensor(p + "self_attn.q_norm.weight", c.head_dim));
    t.push_back(vector_tensor(p + "self_attn.k_norm.weight", c.head_dim));
  }
  t.push_back(weight(p + "self_attn.o_proj.weight", c.hidden, c.q_dim()));
  if (c.o_bias) t.push_back(vector_tensor(p + "self_attn.o_proj.bias", c.hidden));
  t.push_back(vector_tensor(p + "post_attention_layernorm.weight", c.hidden));
  t.push_back(weight(p + "mlp.gate_proj.weight", c.ff, c.hidden));
  t.push_back(weight(p + "mlp.up_proj.weight", c.ff, c.hidden, true));
  if (c.mlp_bias) {
    t.push_back(vector_tensor(p + "mlp.gate_proj.bias", c.ff));
    t.push_back(vector_tensor(p + "mlp.up_proj.bias", c.ff, true));
  }
  t.push_back(weight(p + "mlp.down_proj.weight", c.hidden, c.ff));
  if (c.mlp_bias) t.push_back(vector_tensor(p + "mlp.down_proj.bias", c.hidden));
  return make_layout(std::move(t));
}

LayerLayout head_layout(const ModelConfig& c) {
  std::vector<TensorSpec> t;
  t.push_back(vector_tensor("model.norm.weight", c.hidden));
  if (!c.tied) t.push_back(weight("lm_head.weight", c.vocab, c.hidden));
  return make_layout(std::move(t));
}

BlockOffsets block_offsets(const ModelConfig& c) {
  const LayerLayout layout = block_layout(c, 0);
  const auto at = [&](const char* name) { return offset_of(layout, std::string("model.layers.0.") + name); };
  return {.input_norm = at("input_layernorm.weight"),
          .qkv = at("self_attn.q_proj.weight"),
          .qkv_bias = at("self_attn.q_proj.bias"),
          .q_norm = at("self_attn.q_norm.weight"),
          .k_norm = at("self_attn.k_norm.weight"),
          .o = at("self_attn.o_proj.weight"),
          .o_bias = at("self_attn.o_proj.bias"),
          .post_norm = at("post_attention_layernorm.weight"),
          .gate_up = at("mlp.gate_proj.weight"),
          .gate_up_bias = at("mlp.gate_proj.bias"),
          .down = at("mlp.down_proj.weight"),
          .down_bias = at("mlp.down_proj.bias")};
}

HeadOffsets head_offsets(const ModelConfig& c) {
  const LayerLayout layout = head_layout(c);
  return {.norm = offset_of(layout, "model.norm.weight"), .table = offset_of(layout, "lm_head.weight")};
}

BlockGradients block_gradients(const LayerLayout& block) {
  return {.input_norm = gradient_of(block, ".input_layernorm.weight"),
          .q_norm = gradient_of(block, ".q_norm.weight"),
          .k_norm = gradient_of(block, ".k_norm.weight"),
          .post_norm = gradient_of(block, ".post_attention_layernorm.weight"),
          .qkv = linear_gradients(block, {".q_proj", ".k_proj", ".v_proj"}),
          .o = linear_gradients(block, {".o_proj"}),
          .gate_up = linear_gradients(block, {".gate_proj", ".up_proj"}),
          .down = linear_gradients(block, {".down_proj"})};
}

HeadGradients head_gradients(const LayerLayout& head) {
  return {.norm = gradient_of(head, "model.norm.weight"), .table = gradient_of(head, "lm_head.weight")};
}

std::vector<LayerLayout> model_layouts(const ModelConfig& c, const FreezeRules& rules) {
  std::vector<LayerLayout> layouts;
  layouts.push_back(embedding_layout(c));
  for (int64_t block = 0; block < c.layers; ++block) layouts.push_back(block_layout(c, block));
  layouts.push_back(head_layout(c));
  return freeze_tensors(std::move(layouts), rules, c.tied);
}

void init_tensor(const ModelConfig& c, const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count,
                 float* out) {
  if (tensor.vector) {
    const bool norm = tensor.name.ends_with("norm.weight");
    std::fill(out, out + count, norm ? 1.0f : 0.0f);
    return;
  }
  uint64_t purpose = 0xcbf29ce484222325ull;  // FNV-1a of the name: one stream of numbers a tensor
  for (const char ch : tensor.name) purpose = (purpose ^ static_cast<unsigned char>(ch)) * 0x100000001b3ull;
  const float std = static_cast<float>(c.init_std);
  for (int64_t i = 0; i < count;) {
    const int64_t element = begin + i;
    const auto pair = random_normal_pair(seed, purpose, static_cast<uint64_t>(element / 2));
    for (int64_t lane = element % 2; lane < 2 && i < count; ++lane, ++i) out[i] = std * pair[static_cast<size_t>(lane)];
  }
  if (c.pad_id >= 0 && tensor.name == "model.embed_tokens.weight") {
    const int64_t first = std::clamp(c.pad_id * c.hidden - begin, int64_t{0}, count);
    const int64_t last = std::clamp((c.pad_id + 1) * c.hidden - begin, int64_t{0}, count);
    std::fill(out + first, out + last, 0.0f);
  }
}

}  // namespace megatrain
