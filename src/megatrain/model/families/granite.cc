// Granite 3: Llama with four multipliers: of the embedding, the softmax, each branch's output and the logits.
#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/parts/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/parts/rope_config.h"

namespace megatrain {

namespace {

void read_granite(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.max_position = 2048}, c);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  c.mlp_bias = r.boolean("mlp_bias", false);
  read_multipliers(r, c);
  if (c.branch_scale != 1 && (c.o_bias || c.mlp_bias))
    fail_input(fmt::format("{}: 'residual_multiplier' is {:g} and '{}' is true; megatrain supports one or the other",
                           r.where(), c.branch_scale, c.o_bias ? "attention_bias" : "mlp_bias"));
  c.rope = parse_rope(r, c.max_position);
  c.window = read_no_window(r, c);
}

}  // namespace

Family granite_family() {
  return {.architecture = "GraniteForCausalLM",
          .model_type = "granite",
          .fields = {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"},
          .read = read_granite,
          .tensors = dense_tensors,
          .phases = dense_phases};
}

}  // namespace megatrain
