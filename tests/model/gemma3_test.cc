// Gemma 3's config.json: the contents of Gemma 3 1B's, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/model.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Like Gemma 3 1B's, with fewer and narrower layers.
json gemma3_1b() {
  return {{"architectures", {"Gemma3ForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"attn_logit_softcapping", nullptr},
          {"bos_token_id", 2},
          {"cache_implementation", "hybrid"},
          {"eos_token_id", {1, 6}},
          {"final_logit_softcapping", nullptr},
          {"head_dim", 32},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"hidden_size", 64},
          {"initializer_range", 0.02},
          {"intermediate_size", 96},
          {"max_position_embeddings", 32768},
          {"model_type", "gemma3_text"},
          {"num_attention_heads", 4},
          {"num_hidden_layers", 7},
          {"num_key_value_heads", 1},
          {"pad_token_id", 0},
          {"query_pre_attn_scalar", 256},
          {"rms_norm_eps", 1e-06},
          {"rope_local_base_freq", 10000},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000},
          {"sliding_window", 512},
          {"sliding_window_pattern", 6},
          {"torch_dtype", "bfloat16"},
          {"transformers_version", "4.50.0.dev0"},
          {"use_cache", true},
          {"vocab_size", 100}};
}

ModelConfig parse(const json& changes, const std::vector<std::string>& without = {}) {
  json object = gemma3_1b();
  object.update(changes);
  for (const std::string& key : without) object.erase(key);
  return parse_model_config(object, "config.json");
}

void refused(const json& changes, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { parse(changes); });
}

}  // namespace

TEST(Gemma3, ReadsAsTransformersDoes) {
  const ModelConfig c = parse(json::object());
  EXPECT_EQ(c.window, (std::vector<int64_t>{512, 512, 512, 512, 512, 0, 512}));
  EXPECT_EQ(c.rope.theta, 1e6);
  ASSERT_TRUE(c.window_rope);
  EXPECT_EQ(c.window_rope->theta, 1e4);
  EXPECT_EQ(c.embedding_scale, 8);
  EXPECT_EQ(c.attention_scale, 1.0 / 16);
  EXPECT_EQ(c.norm_offset, 1);
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_EQ(c.pad_id, 0);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(passed_over_fields(gemma3_1b(), "config.json"), std::vector<std::string>());
}

TEST(Gemma3, AbsentFieldsAreWhatTransformersTakes) {
  const ModelConfig c = parse(
      json::object(), {"head_dim", "num_key_value_heads", "pad_token_id", "sliding_window", "sliding_window_pattern",
                       "query_pre_attn_scalar", "rope_theta", "rope_local_base_freq", "hidden_activation"});
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.pad_id, 0);
  EXPECT_EQ(c.window, (std::vector<int64_t>{4096, 4096, 4096, 4096, 4096, 0, 4096}));
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.window_rope->theta, 1e4);
}

TEST(Gemma3, ScalingIsTheGlobalLayersInBothForms) {
  const json linear = {{"rope_type", "linear"}, {"factor", 8.0}};
  const ModelConfig older = parse({{"rope_scaling", linear}});
  json full = linear;
  full["rope_theta"] = 1e6;
  const json parameters = {{"full_attention", full},
                           {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  const ModelConfig newer = parse({{"rope_parameters", parameters}}, {"rope_theta", "rope_local_base_freq"});
  for (const ModelConfig& c : {older, newer}) {
    EXPECT_EQ(c.rope.scaling, RopeScaling::linear);
    EXPECT_EQ(c.rope.factor, 8);
    EXPECT_EQ(c.rope.theta, 1e6);
    EXPECT_EQ(c.window_rope->scaling, RopeScaling::none);
    EXPECT_EQ(c.window_rope->theta, 1e4);
  }
}

TEST(Gemma3, RefusesWhatItCannotDo) {
  refused({{"rope_scaling", {{"type", "linear"}, {"factor", 8.0}}}}, {"rope_scaling", "'rope_type'"});
  refused({{"hidden_act", "silu"}}, {"hidden_act", "gelu_pytorch_tanh"});
  EXPECT_NO_THROW(parse({{"hidden_act", "gelu_pytorch_tanh"}}));
  refused({{"hidden_activation", "gelu"}}, {"hidden_activation", "gelu_pytorch_tanh"});
  refused({{"attn_logit_softcapping", 50.0}}, {"attn_logit_softcapping"});
  refused({{"final_logit_softcapping", 30.0}}, {"final_logit_softcapping"});
  refused({{"use_bidirectional_attention", true}}, {"use_bidirectional_attention"});
  refused({{"attention_bias", true}}, {"attention_bias"});
  refused({{"sliding_window", nullptr}}, {"sliding_window"});
  refused({{"layer_types", {"full_attention"}}}, {"layer_types", "7"});
  refused({{"rope_parameters", {{"rope_type", "default"}}}}, {"rope_parameters", "sliding_attention"});
  refused(
      {{"rope_parameters", {{"full_attention", {{"rope_theta", 5.0}}}, {"sliding_attention", {{"rope_theta", 1e4}}}}}},
      {"rope_theta", "5.0"});
}

TEST(Gemma3, NormsStartAsOnesOfTheirSum) {
  const ModelConfig c = parse(json::object());
  const LayerLayout layout = model_layouts(c)[1];
  ASSERT_EQ(layout.tensors.size(), 13u);
  std::vector<float> values(static_cast<size_t>(c.hidden), 7.0f);
  init_tensor(c, layout.tensors.front(), 1, 0, c.hidden, values.data());
  EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f));
}

}  // namespace megatrain
