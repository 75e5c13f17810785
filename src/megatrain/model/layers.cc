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

std::vector<LayerLayout> model_layouts(const ModelConfig& c) {
  std::vector<LayerLayout> layouts;
  layouts.push_back(embedding_layout(c));
  for (int64_t block = 0; block < c.layers; ++block) layouts.push_back(block_layout(c, block));
  layouts.push_back(head_layout(c));
  return layouts;
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
