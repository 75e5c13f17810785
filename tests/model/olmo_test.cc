#include <gtest/gtest.h>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/family.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

json olmo3_json(const json& more = json::object()) {
  json config = {{"architectures", {"Olmo3ForCausalLM"}},
                 {"model_type", "olmo3"},
                 {"vocab_size", 64},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 8},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"max_position_embeddings", 256},
                 {"rope_theta", 500000},
                 {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 32}}}};
  config.update(more);
  return config;
}

ModelConfig read_olmo3_json(const json& more = json::object()) {
  return parse_model_config(olmo3_json(more), "config.json");
}

}  // namespace

TEST(Olmo, EveryFourthLayerSeesAllTokensUnlessLayerTypesSayOtherwise) {
  EXPECT_EQ(read_olmo3_json().window, (std::vector<int64_t>{4096, 4096, 4096, 0, 4096, 4096, 4096, 0}));
  EXPECT_EQ(
      read_olmo3_json(
          {{"num_hidden_layers", 2}, {"sliding_window", 8}, {"layer_types", {"full_attention", "sliding_attention"}}})
          .window,
      (std::vector<int64_t>{0, 8}));
}

TEST(Olmo, OnlyLayersWithoutAWindowScaleRope) {
  const ModelConfig c = read_olmo3_json();
  EXPECT_EQ(c.rope.scaling, RopeScaling::yarn);
  ASSERT_TRUE(c.window_rope.has_value());
  EXPECT_EQ(c.window_rope->scaling, RopeScaling::none);
  EXPECT_EQ(c.window_rope->theta, 5e5);
}

TEST(Olmo, NormsStandBehindTheBranchesAndThoseOfQueriesSpanAllHeads) {
  const ModelConfig c = read_olmo3_json();
  std::map<std::string, int64_t> norms;
  const std::vector<std::vector<TensorSpec>> records = family_of(c).tensors(c, 0);
  for (const TensorSpec& tensor : records.front()) {
    if (tensor.role == TensorRole::norm) norms[tensor.name] = tensor.cols;
  }
  EXPECT_EQ(norms, (std::map<std::string, int64_t>{{"model.layers.0.post_attention_layernorm.weight", 32},
                                                   {"model.layers.0.post_feedforward_layernorm.weight", 32},
                                                   {"model.layers.0.self_attn.k_norm.weight", 16},
                                                   {"model.layers.0.self_attn.q_norm.weight", 32}}));
}

TEST(Olmo, WhatTransformersVersionsReadUnlikeIsRefused) {
  const auto refused = [](const json& more, std::initializer_list<std::string> parts) {
    expect_error(ExitCode::bad_input, parts, [&] { read_olmo3_json(more); });
  };
  refused({{"rope_theta", 10000}}, {"rope_theta", "10000", "rope_parameters"});
  refused({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000}}}}, {"rope_parameters"});
  refused({{"sliding_window", nullptr}}, {"sliding_window", "null"});
  refused({{"use_sliding_window", true}}, {"use_sliding_window"});
  refused({{"mlp_bias", true}}, {"mlp_bias"});
}

}  // namespace megatrain
