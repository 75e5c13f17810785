// SmolLM3: Llama in which every fourth layer has no RoPE. A sliding window, which releases do not have, is in these
// layers.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

constexpr int64_t kNoRopeInterval = 4;

// A file lists 1 for a layer with RoPE and 0 for one without.
std::vector<bool> read_no_rope(const ConfigReader& r, int64_t layers) {
  const int64_t interval = r.positive("no_rope_layer_interval", kNoRopeInterval);
  std::vector<bool> none;
  if (!r.has("no_rope_layers")) {
    for (int64_t l = 0; l < layers; ++l) none.push_back((l + 1) % interval == 0);
    return none;
  }
  const json& given = r.at("no_rope_layers");
  for (const json& rotates : given.is_array() ? given : json::array()) {
    if (rotates == json(0) || rotates == json(1)) none.push_back(rotates == json(0));
  }
  if (std::ssize(none) != layers || given.size() != none.size())
    fail_input(fmt::format("{}: 'no_rope_layers' is {}; it must list 1 (RoPE) or 0 (none) for each of the {} layers",
                           r.where(), given.dump(), layers));
  return none;
}

void read_smollm3(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 4, .max_position = 32768}, c);
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) {  // transformers' default
    c.pad_id = 128004;
    if (c.pad_id >= c.vocab)
      fail_input(
          fmt::format("{}: 'pad_token_id' is missing, and transformers then uses 128004, above vocab_size ({}); set it "
                      "to null or to a token's id",
                      r.where(), c.vocab));
  }
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  c.rope = parse_rope(r, c.max_position, 2e6);
  c.no_rope = read_no_rope(r, c.layers);

  const bool on = r.boolean("use_sliding_window", false) && r.has("sliding_window");
  const int64_t window = on ? r.positive("sliding_window") : 0;
  const std::vector<bool> sliding = read_layer_types(r, c.layers).value_or(on ? c.no_rope : std::vector<bool>());
  for (int64_t l = 0; l < c.layers; ++l) {
    const bool local = !sliding.empty() && sliding[static_cast<size_t>(l)];
    if (local && !on)
      fail_input(
          fmt::format("{}: layer_types[{}] is sliding_attention, but there is no active sliding_window", r.where(), l));
    c.window.push_back(local ? window : 0);
  }
}

std::string smollm3_unlike_llama_cpp(const ModelConfig& c) {
  for (int64_t l = 0; l < c.layers; ++l) {
    if (c.rotates(l) != ((l + 1) % kNoRopeInterval != 0)) return "whose layers without RoPE are not every fourth";
  }
  if (c.o_bias) return "with attention_bias";
  if (c.mlp_bias) return "with mlp_bias";
  return c.rope.scaling == RopeScaling::llama3 ? "with RoPE scaled as Llama 3 does" : "";
}

}  // namespace

Family smollm3_family() {
  json preset = preset_json("SmolLM3ForCausalLM", "smollm3", {2048, 11008, 36, 16, 4, 128256, true, 1e-6, 5e6});
  preset.update({{"max_position_embeddings", 65536}, {"pad_token_id", 128004}});
  return {.architecture = "SmolLM3ForCausalLM",
          .model_type = "smollm3",
          // The class does not read the last one, and the release has 2.
          .fields = {"no_rope_layers", "no_rope_layer_interval", "pretraining_tp"},
          .read = read_smollm3,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .llama_cpp = LlamaCpp{.name = "smollm3", .is_llama = true, .unlike = smollm3_unlike_llama_cpp},
          .presets = {{"smollm3-3b", std::move(preset)}}};
}

}  // namespace megatrain
