#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatrain/io/json.h"
#include "megatrain/model/model.h"
#include "megatrain/model/parse_config.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

nlohmann::json granite4(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json config = {{"architectures", {"GraniteMoeHybridForCausalLM"}},
                           {"model_type", "granitemoehybrid"},
                           {"vocab_size", 64},
                           {"hidden_size", 32},
                           {"intermediate_size", 24},
                           {"num_hidden_layers", 4},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"layer_types", {"mamba", "mamba", "attention", "mamba"}},
                           {"shared_intermediate_size", 40},
                           {"num_local_experts", 0},
                           {"mamba_n_heads", 8},
                           {"mamba_d_state", 16}};
  config.update(more);
  return config;
}

ModelConfig read_granite4(const nlohmann::json& more = nlohmann::json::object()) {
  return parse_model_config(granite4(more), "config.json");
}

std::vector<std::string> names_of(const LayerLayout& layout) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : layout.tensors) names.push_back(tensor.name);
  return names;
}

const TensorSpec& find_tensor(const LayerLayout& layout, const std::string& end) {
  return *std::ranges::find_if(layout.tensors, [&](const TensorSpec& tensor) { return tensor.name.ends_with(end); });
}

}  // namespace

TEST(Granite4, HasMambaWhereTheFileSaysSoUnderEitherName) {
  EXPECT_EQ(read_granite4().mamba2.layers, (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(
      read_granite4({{"layer_types", {"linear_attention", "full_attention", "mamba", "attention"}}}).mamba2.layers,
      (std::vector<bool>{true, false, true, false}));
  nlohmann::json all = granite4();
  all.erase("layer_types");
  EXPECT_EQ(parse_model_config(all, "config.json").mamba2.layers, std::vector<bool>(4, true));
  EXPECT_EQ(read_granite4({{"layer_types", std::vector<std::string>(4, "attention")}}).mamba2.heads, 0);
  expect_error(ExitCode::bad_input, {"layer_types[1]", "sliding_attention"}, [] {
    read_granite4({{"layer_types", {"mamba", "sliding_attention", "mamba", "mamba"}}});
  });
}

TEST(Granite4, RotatesOnlyIfTheFileAsksForRope) {
  EXPECT_FALSE(read_granite4().rotates(2));
  EXPECT_FALSE(read_granite4({{"position_embedding_type", "nope"}}).rotates(2));
  EXPECT_TRUE(read_granite4({{"position_embedding_type", "rope"}}).rotates(2));
  expect_error(ExitCode::bad_input, {"position_embedding_type"}, [] {
    read_granite4({{"position_embedding_type", "alibi"}});
  });
}

TEST(Granite4, ReadsLimitsOfTheStepAsTransformersWritesThem) {
  EXPECT_EQ(read_granite4().mamba2.most_step, std::numeric_limits<double>::infinity());
  const nlohmann::json infinity = {{"__float__", "Infinity"}};
  EXPECT_EQ(read_granite4({{"time_step_limit", {0.001, infinity}}}).mamba2.least_step, 0.001);
  EXPECT_EQ(read_granite4({{"time_step_limit", {0.0, 0.5}}}).mamba2.most_step, 0.5);
  for (const nlohmann::json& wrong : {nlohmann::json{0.5, 0.1}, nlohmann::json{0.1}, nlohmann::json("0.1"),
                                      nlohmann::json{-1.0, 1.0}, nlohmann::json()})
    expect_error(ExitCode::bad_input, {"time_step_limit"}, [&] { read_granite4({{"time_step_limit", wrong}}); });
}

TEST(Granite4, RefusesWhatWouldChangeTheMaths) {
  expect_error(ExitCode::bad_input, {"mlp_bias"}, [] { read_granite4({{"mlp_bias", true}}); });
  expect_error(ExitCode::bad_input, {"sliding_window"}, [] { read_granite4({{"sliding_window", 128}}); });
  expect_error(ExitCode::bad_input, {"normalization_function"}, [] {
    read_granite4({{"normalization_function", "layernorm"}});
  });
  expect_error(ExitCode::bad_input, {"output_router_logits"}, [] { read_granite4({{"output_router_logits", true}}); });
  expect_error(ExitCode::bad_input, {"mamba_d_head", "mamba_expand"}, [] { read_granite4({{"mamba_d_head", 12}}); });
  expect_error(ExitCode::bad_input, {"mamba_n_heads", "multiple"}, [] { read_granite4({{"mamba_n_groups", 3}}); });
  expect_error(ExitCode::bad_input, {"mamba_d_state", "256"}, [] { read_granite4({{"mamba_d_state", 257}}); });
  expect_error(ExitCode::bad_input, {"mamba_d_conv", "2 to 4"}, [] { read_granite4({{"mamba_d_conv", 5}}); });
  expect_error(ExitCode::bad_input, {"mamba_chunk_size", "0"}, [] { read_granite4({{"mamba_chunk_size", 0}}); });
  for (const char* field : {"mamba_conv_bias", "mamba_d_conv", "mamba_chunk_size", "embedding_multiplier",
                            "logits_scaling", "num_local_experts"})
    expect_error(ExitCode::bad_input, {field, "null"}, [&] { read_granite4({{field, nullptr}}); });
  expect_error(ExitCode::bad_input, {"residual_multiplier", "mamba_proj_bias"}, [] {
    read_granite4({{"residual_multiplier", 0.5}, {"mamba_proj_bias", true}});
  });
  expect_error(ExitCode::bad_input, {"residual_multiplier", "attention_bias"}, [] {
    read_granite4({{"residual_multiplier", 0.5}, {"attention_bias", true}});
  });
  expect_error(ExitCode::bad_input, {"mamba_d_state", "does not know this field"}, [] {
    nlohmann::json config = granite4();
    config["architectures"] = {"GraniteForCausalLM"};
    config["model_type"] = "granite";
    parse_model_config(config, "config.json");
  });
}

TEST(Granite4, ItsTensorsHaveTheNamesOfFiles) {
  const std::vector<LayerLayout> layers = model_layouts(read_granite4());
  EXPECT_EQ(
      names_of(layers[1]),
      (std::vector<std::string>{
          "model.layers.0.input_layernorm.weight", "model.layers.0.mamba.in_proj.weight",
          "model.layers.0.mamba.conv1d.weight", "model.layers.0.mamba.conv1d.bias", "model.layers.0.mamba.dt_bias",
          "model.layers.0.mamba.A_log", "model.layers.0.mamba.D", "model.layers.0.mamba.norm.weight",
          "model.layers.0.mamba.out_proj.weight", "model.layers.0.post_attention_layernorm.weight",
          "model.layers.0.shared_mlp.input_linear.weight", "model.layers.0.shared_mlp.output_linear.weight"}));
  EXPECT_EQ(find_tensor(layers[1], "in_proj.weight").rows, 2 * 64 + 2 * 16 + 8);
  EXPECT_EQ(find_tensor(layers[1], "input_linear.weight").rows, 80);
}

TEST(Granite4, ItsVectorsStartAsInTransformers) {
  const ModelConfig c = read_granite4();
  const LayerLayout layer = model_layouts(c)[1];
  const auto values = [&](const std::string& end) {
    const TensorSpec& tensor = find_tensor(layer, end);
    std::vector<float> drawn(static_cast<size_t>(tensor.elements()));
    init_tensor(c, tensor, 3, 0, tensor.elements(), drawn.data());
    return drawn;
  };
  for (const char* name : {"mamba.D", "mamba.dt_bias"}) EXPECT_EQ(values(name), std::vector<float>(8, 1)) << name;
  EXPECT_EQ(values("mamba.norm.weight"), std::vector<float>(64, 1));
  const std::vector<float> logs = values("mamba.A_log");
  for (size_t i = 0; i < logs.size(); ++i) EXPECT_EQ(logs[i], std::log(static_cast<float>(i + 1)));
}

}  // namespace megatrain
