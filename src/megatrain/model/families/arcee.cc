// Arcee (AFM): Llama whose MLP squares a ReLU instead of having a gate.
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

using nlohmann::json;

void read_arcee(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 4096}, c);
  c.norm_eps = r.positive_number("rms_norm_eps", 1e-5);
  must_be(r, "hidden_act", "relu2", c.architecture);
  c.activation = Activation::relu_squared;
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
}

}  // namespace

Family arcee_family() {
  json preset = preset_json("ArceeForCausalLM", "arcee", {2560, 18432, 36, 20, 4, 128004, false, 1e-5, 1e4});
  preset.update({{"hidden_act", "relu2"}, {"head_dim", 128}, {"max_position_embeddings", 65536}});
  return {.architecture = "ArceeForCausalLM",
          .model_type = "arcee",
          .fields = {"hidden_act"},
          .read = read_arcee,
          .tensors = dense_tensors,
          .phases = dense_phases,
          .presets = {{"afm-4.5b", std::move(preset)}}};
}

}  // namespace megatrain
