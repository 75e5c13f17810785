// Releases of other names whose config.json says Llama, with the fields that they have.
#include <gtest/gtest.h>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

json llama_like(const json& more) {
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"attention_bias", false},
                 {"attention_dropout", 0.0},
                 {"hidden_act", "silu"},
                 {"initializer_range", 0.02},
                 {"mlp_bias", false},
                 {"pretraining_tp", 1},
                 {"rope_scaling", nullptr},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "bfloat16"},
                 {"use_cache", true}};
  config.update(more);
  return config;
}

}  // namespace

TEST(LlamaLikes, Falcon3IsRead) {
  const ModelConfig c = parse_model_config(llama_like({{"activation", "swiglu"},
                                                       {"eos_token_id", 11},
                                                       {"head_dim", 256},
                                                       {"hidden_size", 3072},
                                                       {"intermediate_size", 23040},
                                                       {"max_position_embeddings", 32768},
                                                       {"num_attention_heads", 12},
                                                       {"num_hidden_layers", 28},
                                                       {"num_key_value_heads", 4},
                                                       {"rms_norm_eps", 1e-6},
                                                       {"rope_theta", 1000042},
                                                       {"vocab_size", 131072}}),
                                           "config.json");
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.rope.theta, 1000042);
}

TEST(LlamaLikes, YiIsRead) {
  const ModelConfig c = parse_model_config(llama_like({{"bos_token_id", 1},
                                                       {"eos_token_id", 2},
                                                       {"hidden_size", 4096},
                                                       {"intermediate_size", 11008},
                                                       {"max_position_embeddings", 4096},
                                                       {"num_attention_heads", 32},
                                                       {"num_hidden_layers", 48},
                                                       {"num_key_value_heads", 4},
                                                       {"pad_token_id", 0},
                                                       {"rms_norm_eps", 1e-6},
                                                       {"rope_theta", 5000000.0},
                                                       {"vocab_size", 64000}}),
                                           "config.json");
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.pad_id, 0);
}

TEST(LlamaLikes, InternLm3AndExaone35AreRefusedWithWhatDiffers) {
  expect_error(ExitCode::bad_input, {"InternLM3ForCausalLM", "Llama", "dynamic"}, [] {
    parse_model_config({{"architectures", {"InternLM3ForCausalLM"}}, {"model_type", "internlm3"}}, "config.json");
  });
  expect_error(ExitCode::bad_input, {"ExaoneForCausalLM", "Llama's tensors"}, [] {
    parse_model_config({{"architectures", {"ExaoneForCausalLM"}}, {"model_type", "exaone"}}, "config.json");
  });
}

}  // namespace megatrain
