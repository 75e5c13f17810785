#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/model.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

nlohmann::json qwen3_5(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json config = {{"architectures", {"Qwen3_5ForCausalLM"}},
                           {"model_type", "qwen3_5_text"},
                           {"vocab_size", 64},
                           {"hidden_size", 32},
                           {"intermediate_size", 48},
                           {"num_hidden_layers", 8},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 16},
                           {"linear_num_key_heads", 2},
                           {"linear_num_value_heads", 4},
                           {"linear_key_head_dim", 16},
                           {"linear_value_head_dim", 16}};
  config.update(more);
  return config;
}

ModelConfig read(const nlohmann::json& more = nlohmann::json::object()) {
  return parse_model_config(qwen3_5(more), "config.json");
}

const TensorSpec& tensor_of(const LayerLayout& layout, const std::string& end) {
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.name.ends_with(end)) return tensor;
  }
  throw std::runtime_error("no tensor " + end);
}

}  // namespace

TEST(Qwen3_5, HasFullAttentionInEveryFourthLayerUnlessTheFileSaysOtherwise) {
  EXPECT_EQ(read().delta_net.layers, (std::vector<bool>{true, true, true, false, true, true, true, false}));
  EXPECT_EQ(read({{"full_attention_interval", 2}}).delta_net.layers,
            (std::vector<bool>{true, false, true, false, true, false, true, false}));
  const nlohmann::json types = {"full_attention",   "linear_attention", "linear_attention", "linear_attention",
                                "linear_attention", "linear_attention", "linear_attention", "full_attention"};
  EXPECT_EQ(read({{"layer_types", types}}).delta_net.layers,
            (std::vector<bool>{false, true, true, true, true, true, true, false}));
}

TEST(Qwen3_5, RotatesAQuarterOfAHeadUnlessTheFileSaysOtherwise) {
  EXPECT_EQ(read().rope.rotary_dim, 4);
  EXPECT_EQ(read({{"partial_rotary_factor", 0.5}}).rope.rotary_dim, 8);
  const nlohmann::json parameters = {
      {"rope_theta", 1e7}, {"partial_rotary_factor", 0.125}, {"mrope_section", {1, 1, 0}}, {"mrope_interleaved", true}};
  EXPECT_EQ(read({{"rope_parameters", parameters}}).rope.rotary_dim, 2);
  EXPECT_EQ(read({{"rope_parameters", parameters}}).rope.theta, 1e7);
  expect_error(ExitCode::bad_input, {"partial_rotary_factor", "remove the wrong one"}, [&] {
    read({{"rope_parameters", parameters}, {"partial_rotary_factor", 0.5}});
  });
  expect_error(ExitCode::bad_input, {"partial_rotary_factor", "even"}, [] { read({{"partial_rotary_factor", 0.2}}); });
  expect_error(ExitCode::bad_input, {"partial_rotary_factor", "even"}, [] { read({{"partial_rotary_factor", 1.5}}); });
}

TEST(Qwen3_5, RefusesWhatWouldChangeTheMaths) {
  expect_error(ExitCode::bad_input, {"attention_bias"}, [] { read({{"attention_bias", true}}); });
  expect_error(ExitCode::bad_input, {"attn_output_gate"}, [] { read({{"attn_output_gate", false}}); });
  expect_error(ExitCode::bad_input, {"output_gate_type"}, [] { read({{"output_gate_type", "sigmoid"}}); });
  expect_error(ExitCode::bad_input, {"mamba_ssm_dtype"}, [] { read({{"mamba_ssm_dtype", "bfloat16"}}); });
  expect_error(ExitCode::bad_input, {"sliding_window"}, [] { read({{"sliding_window", 128}}); });
  expect_error(ExitCode::bad_input, {"linear_num_value_heads", "multiple"}, [] {
    read({{"linear_num_value_heads", 3}});
  });
  expect_error(ExitCode::bad_input, {"linear_key_head_dim", "multiples of 16"}, [] {
    read({{"linear_key_head_dim", 24}});
  });
  expect_error(ExitCode::bad_input, {"linear_conv_kernel_dim", "2 to 4"}, [] {
    read({{"linear_conv_kernel_dim", 5}});
  });
  expect_error(ExitCode::bad_input, {"layer_types[0]", "sliding_attention"}, [] {
    read({{"layer_types", std::vector<std::string>(8, "sliding_attention")}});
  });
  expect_error(ExitCode::bad_input, {"linear_key_head_dim", "does not know this field"}, [] {
    nlohmann::json config = qwen3_5();
    config["architectures"] = {"Qwen3ForCausalLM"};
    config["model_type"] = "qwen3";
    parse_model_config(config, "config.json");
  });
}

TEST(Qwen3_5, ItsVectorsStartAsInTransformers) {
  const ModelConfig c = read();
  const LayerLayout layer = model_layouts(c)[1];
  const auto values = [&](const std::string& end) {
    const TensorSpec& tensor = tensor_of(layer, end);
    std::vector<float> drawn(static_cast<size_t>(tensor.elements()));
    init_tensor(c, tensor, 3, 0, tensor.elements(), drawn.data());
    return drawn;
  };
  EXPECT_EQ(values("linear_attn.norm.weight"), std::vector<float>(16, 1));
  EXPECT_EQ(values("linear_attn.dt_bias"), std::vector<float>(4, 1));
  EXPECT_EQ(values("input_layernorm.weight"), std::vector<float>(32, 0));
  for (const float value : values("linear_attn.A_log")) {
    EXPECT_GE(value, std::log(0.01f));
    EXPECT_LE(value, std::log(16.0f));
  }
}

TEST(Qwen3_5, QueriesAndTheirGatesAreOneTensor) {
  const ModelConfig c = read();
  EXPECT_EQ(tensor_of(model_layouts(c)[4], "self_attn.q_proj.weight").rows, 2 * 4 * 16);
  EXPECT_EQ(tensor_of(model_layouts(c)[1], "linear_attn.in_proj_qkv.weight").rows, 2 * 2 * 16 + 4 * 16);
}

}  // namespace megatrain
