// Command R (Cohere) and Command R7B, A and Aya Expanse (Cohere 2): layer norms without biases, attention and MLP side
// by side behind one of them, RoPE in pairs, and scaled logits. Cohere 2 has a sliding window and RoPE in three layers
// of four, and neither in the fourth.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/layers/mixers/parallel_mlp.h"
#include "megatrain/model/parts/rope_config.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr int64_t kCoherePeriod = 4;  // every 4th layer of Cohere 2 sees all tokens

void read_both(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 8192}, c);
  c.norm_eps = r.positive_number("layer_norm_eps", 1e-5);
  c.norm_centred = true;
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  must_be(r, "use_parallel_block", true, c.architecture);
  must_be(r, "use_gated_activation", true, c.architecture);
  for (const char* key : {"logit_scale", "layer_norm_eps"}) r.refuse_null(key);
  c.logits_scale = r.positive_number("logit_scale", 0.0625);
}

void read_rope(const ConfigReader& r, double absent_theta, ModelConfig& c) {
  c.rope = parse_rope(r, c.max_position, absent_theta);
  c.rope.pairs = true;
}

void read_cohere(const ConfigReader& r, ModelConfig& c) {
  read_both(r, c);
  read_rope(r, 500000, c);
  if (r.boolean("use_qk_norm", false))
    fail_input(r.where() +
               ": 'use_qk_norm' is true; norms that have a weight of their own for each head are not supported");
  c.window = read_no_window(r, c);
}

void read_cohere2(const ConfigReader& r, ModelConfig& c) {
  read_both(r, c);
  read_rope(r, 10000, c);
  must_be(r, "use_qk_norm", false, c.architecture);
  must_be(r, "use_embedding_sharing", c.tied, c.architecture);
  must_be(r, "position_embedding_type", "rope_gptj", c.architecture);
  must_be(r, "rotary_pct", 1.0, c.architecture);
  must_be(r, "order_of_interleaved_layers", "local_attn_first", c.architecture);
  for (const char* key : {"use_sliding_window", "max_window_layers"}) must_be(r, key, nullptr, c.architecture);
  constexpr const char *kPattern = "sliding_window_pattern", *kOldPattern = "_sliding_window_pattern";
  if (r.has(kPattern) && r.has(kOldPattern) && r.at(kPattern) != r.at(kOldPattern))
    fail_input(r.where() + ": 'sliding_window_pattern' and '_sliding_window_pattern' differ; remove the wrong one");
  const bool none = r.object().contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = r.positive("sliding_window", 4096),
                period = r.positive(kPattern, r.positive(kOldPattern, kCoherePeriod));
  const std::optional<std::vector<bool>> types = read_layer_types(r, c.layers);
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool local = types ? (*types)[static_cast<size_t>(l)] : (l + 1) % period != 0;
    if (local && none)
      fail_input(r.where() + ": 'sliding_window' is null, but some layers are local; give its size in tokens");
    c.window.push_back(local ? window : 0);
    c.no_rope.push_back(!local);
  }
}

std::vector<std::vector<TensorSpec>> cohere_tensors(const ModelConfig& c, int64_t layer) {
  std::vector<std::vector<TensorSpec>> lists = dense_tensors(c, layer);
  std::erase_if(lists.front(), [](const TensorSpec& tensor) { return tensor.operand == BlockOperand::post_norm; });
  return lists;
}

std::vector<std::unique_ptr<const Phase>> cohere_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records) {
  const LinearTensors from(records.front(), adapters_among(records));
  Block::Mixers mixers = attention_of(config, shape, layer, from);
  mixers.push_back(std::make_unique<ParallelMlp>(config.activation, shape.dtype, from));
  return one_block(config, shape, from, std::move(mixers), {});
}

Family::Preset cohere_preset(const char* name, bool second, const PresetSizes& sizes, const json& more) {
  json config = preset_json(second ? "Cohere2ForCausalLM" : "CohereForCausalLM", second ? "cohere2" : "cohere", sizes);
  config.erase("rms_norm_eps");
  config.update({{"layer_norm_eps", sizes.norm_eps}});
  config.update(more);
  return {name, std::move(config)};
}

}  // namespace

Family cohere_family() {
  return {.architecture = "CohereForCausalLM",
          .model_type = "cohere",
          .fields = {"layer_norm_eps", "logit_scale", "use_gated_activation", "use_parallel_block", "use_qk_norm"},
          .read = read_cohere,
          .tensors = cohere_tensors,
          .phases = cohere_phases,
          .presets = {cohere_preset("command-r-35b", false, {8192, 22528, 40, 64, 64, 256000, true, 1e-5, 8e6},
                                    {{"max_position_embeddings", 131072}, {"logit_scale", 0.0625}})}};
}

Family cohere2_family() {
  return {.architecture = "Cohere2ForCausalLM",
          .model_type = "cohere2",
          .fields = {"cache_implementation", "layer_norm_eps", "layer_switch", "logit_scale",
                     "order_of_interleaved_layers", "position_embedding_type", "rotary_pct", "sliding_window_pattern",
                     "_sliding_window_pattern", "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
                     "use_parallel_embedding", "use_qk_norm"},
          .read = read_cohere2,
          .tensors = cohere_tensors,
          .phases = cohere_phases,
          .presets = {cohere_preset("command-r7b", true, {4096, 14336, 32, 32, 8, 256000, true, 1e-5, 5e4},
                                    {{"max_position_embeddings", 8192}, {"logit_scale", 0.25}}),
                      cohere_preset("command-a-111b", true, {12288, 36864, 64, 96, 8, 256000, true, 1e-5, 5e4},
                                    {{"max_position_embeddings", 131072}, {"logit_scale", 0.25}})}};
}

}  // namespace megatrain
