// ERNIE 4.5, dense: Llama whose RoPE turns pairs of neighbours, with biases everywhere or nowhere.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_ernie4_5(const ConfigReader& r, ModelConfig& c) {
  const bool null_head = r.object().contains("head_dim") && !r.has("head_dim");
  json object = r.object();
  if (null_head) object.erase("head_dim");  // hidden_size / num_attention_heads
  read_sizes(ConfigReader(object, r.where()), {.kv_heads = 2, .head_dim = null_head ? 0 : 128, .max_position = 131072},
             c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  c.tied = r.boolean("tie_word_embeddings", true);
  if (!r.object().contains("pad_token_id")) c.pad_id = 0;  // transformers' default
  for (const char* key : {"attention_bias", "mlp_bias"}) must_be(r, key, false, c.architecture);
  c.qkv_bias = c.o_bias = c.mlp_bias = r.boolean("use_bias", false);
  c.rope = parse_rope(r, c.max_position, 5e5);
  c.rope.pairs = true;
  c.window = read_no_window(r, c);
}

}  // namespace

Family ernie4_5_family() {
  json preset = preset_json("Ernie4_5ForCausalLM", "ernie4_5", {1024, 3072, 18, 16, 2, 103424, true, 1e-5, 5e5});
  preset.update({{"head_dim", 128}, {"max_position_embeddings", 131072}});
  return {.architecture = "Ernie4_5ForCausalLM",
          .model_type = "ernie4_5",
          .fields = {"use_bias"},
          .read = read_ernie4_5,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .presets = {{"ernie4.5-0.3b", std::move(preset)}}};
}

}  // namespace megatrain
