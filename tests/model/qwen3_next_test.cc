#include <gtest/gtest.h>

#include <algorithm>

#include "megatrain/io/json.h"
#include "megatrain/model/model.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/presets.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

nlohmann::json qwen3_next(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json config = {{"architectures", {"Qwen3NextForCausalLM"}},
                           {"model_type", "qwen3_next"},
                           {"vocab_size", 64},
                           {"hidden_size", 32},
                           {"num_hidden_layers", 4},
                           {"num_attention_heads", 4},
                           {"head_dim", 16},
                           {"linear_num_key_heads", 2},
                           {"linear_num_value_heads", 4},
                           {"linear_key_head_dim", 16},
                           {"linear_value_head_dim", 32}};
  config.update(more);
  return config;
}

ModelConfig read_next(const nlohmann::json& more = nlohmann::json::object()) {
  return parse_model_config(qwen3_next(more), "config.json");
}

bool has_tensor(const LayerLayout& layout, const std::string& name, int64_t rows) {
  return std::ranges::any_of(layout.tensors, [&](const TensorSpec& t) { return t.name == name && t.rows == rows; });
}

}  // namespace

TEST(Qwen3Next, HasTransformersDefaults) {
  const ModelConfig c = read_next();
  EXPECT_EQ(c.delta_net.layers, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(c.delta_net.taps, 4);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.rope.rotary_dim, 4);
  EXPECT_EQ(c.ff, 5632);
  EXPECT_EQ(c.experts.count, 512);
  EXPECT_EQ(c.experts.chosen, 10);
  EXPECT_EQ(c.experts.ff, 512);
  EXPECT_EQ(c.experts.shared_ff, 512);
  EXPECT_EQ(c.experts.layers, std::vector<bool>(4, true));
  EXPECT_EQ(c.experts.score, RouterScore::softmax_of_chosen);
  EXPECT_EQ(read_next({{"norm_topk_prob", false}}).experts.score, RouterScore::softmax_of_all);
}

TEST(Qwen3Next, LayersAreDenseWhereTheFileSaysSo) {
  EXPECT_EQ(read_next({{"mlp_only_layers", {1}}}).experts.layers, (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(read_next({{"decoder_sparse_step", 2}}).experts.layers, (std::vector<bool>{false, true, false, true}));
}

TEST(Qwen3Next, ProjectionsOfADeltaNetAreTwoTensors) {
  const std::vector<LayerLayout> layouts = model_layouts(read_next({{"num_experts", 10}}));
  const std::string net = "model.layers.0.linear_attn.";
  EXPECT_TRUE(has_tensor(layouts[1], net + "in_proj_qkvz.weight", 2 * 2 * 16 + 2 * 4 * 32));
  EXPECT_TRUE(has_tensor(layouts[1], net + "in_proj_ba.weight", 2 * 4));
  EXPECT_TRUE(has_tensor(layouts[1], net + "conv1d.weight", 2 * 2 * 16 + 4 * 32));
}

TEST(Qwen3Next, ThePresetHas79BillionParameters) {
  const ModelConfig c = parse_model_config(*preset_config("qwen3-next-80b-a3b"), "preset");
  int64_t parameters = 0;
  for (const LayerLayout& layout : model_layouts(c)) parameters += layout.parameters();
  EXPECT_EQ(parameters, 79'674'391'296);
}

TEST(Qwen3Next, RefusesWhatWouldChangeTheMaths) {
  const auto refused = [](const nlohmann::json& more, std::initializer_list<std::string> words) {
    expect_error(ExitCode::bad_input, words, [&] { read_next(more); });
  };
  refused({{"attention_bias", true}}, {"attention_bias"});
  refused({{"sliding_window", 128}}, {"sliding_window"});
  for (const char* field : {"norm_topk_prob", "num_experts_per_tok", "linear_num_key_heads", "linear_conv_kernel_dim"})
    refused({{field, nullptr}}, {field, "null"});
  refused({{"linear_num_value_heads", 3}}, {"linear_num_value_heads", "multiple"});
  refused({{"linear_key_head_dim", 24}}, {"linear_key_head_dim", "multiples of 16"});
  refused({{"layer_types", {"full_attention"}}}, {"layer_types", "4 layers"});
  refused({{"num_experts_per_tok", 600}}, {"num_experts_per_tok", "512 experts"});
  refused({{"mlp_only_layers", 3}}, {"mlp_only_layers"});
  refused({{"attn_output_gate", false}}, {"attn_output_gate", "does not know this field"});
  refused({{"rope_parameters", {{"rope_theta", 1e7}, {"mrope_section", {1, 1, 0}}}}}, {"mrope_section"});
}

}  // namespace megatrain
