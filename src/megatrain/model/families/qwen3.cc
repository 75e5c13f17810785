// Qwen 3: a norm of each query and key head, and a window that use_sliding_window switches on.
#include "megatrain/model/dense_family.h"
#include "megatrain/model/families/families.h"
#include "megatrain/model/rope_config.h"

namespace megatrain {

namespace {

void read(const ConfigReader& r, ModelConfig& c) {
  read_sizes(r, {.kv_heads = 32, .head_dim = 128, .max_position = 32768}, c);
  c.qkv_bias = c.o_bias = r.boolean("attention_bias", false);
  must_be(r, "mlp_bias", false, c.architecture);
  c.qk_norm = true;
  c.rope = parse_rope(r, c.max_position);
  c.window = read_switched_window(r, c);
}

}  // namespace

Family qwen3_family() {
  return {.architecture = "Qwen3ForCausalLM",
          .model_type = "qwen3",
          .read = read,
          .tensors = dense_tensors,
          .phases = dense_phases};
}

}  // namespace megatrain
