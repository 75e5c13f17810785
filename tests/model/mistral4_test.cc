#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatrain/io/json.h"
#include "megatrain/model/layers/rope_table.h"
#include "megatrain/model/model.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/presets.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

json mistral4(const json& more = json::object()) {
  json config = *preset_config("mistral-small-4-119b");
  config.update({{"hidden_size", 32}, {"num_hidden_layers", 2}, {"vocab_size", 64}, {"n_routed_experts", 8}});
  config.update(more);
  return config;
}

ModelConfig read_mistral4(const json& more = json::object()) {
  return parse_model_config(mistral4(more), "config.json");
}

json with_rope(const json& more) {
  json config = mistral4();
  config["rope_parameters"].update(more);
  return {{"rope_parameters", config["rope_parameters"]}};
}

}  // namespace

TEST(Mistral4, ThePresetHasThePublishedParameters) {
  int64_t parameters = 0;
  for (const LayerLayout& layout : model_layouts(parse_model_config(*preset_config("mistral-small-4-119b"), "preset")))
    parameters += layout.parameters();
  EXPECT_EQ(parameters, 118'972'826'624);
}

TEST(Mistral4, AHeadsElementsAreThoseWithAndWithoutRope) {
  EXPECT_EQ(read_mistral4({{"head_dim", 128}}).head_dim, 128);
  EXPECT_THROW(read_mistral4({{"head_dim", 64}}), Error);
}

TEST(Mistral4, HasASoftmaxRouterAndNoBiasOfTheChoice) {
  const ModelConfig c = read_mistral4();
  EXPECT_EQ(c.experts.score, RouterScore::softmax_of_chosen);
  EXPECT_EQ(read_mistral4({{"norm_topk_prob", false}}).experts.score, RouterScore::softmax_of_all);
  EXPECT_FALSE(c.experts.choice_bias);
  EXPECT_EQ(read_mistral4({{"routed_scaling_factor", 1.5}}).experts.weight_scale, 1.5);
  EXPECT_EQ(read_mistral4({{"first_k_dense_replace", 1}}).experts.layers, (std::vector<bool>{false, true}));
  EXPECT_EQ(c.experts.layers, (std::vector<bool>{true, true}));
}

TEST(Mistral4, ItsRopeIsTransformersIfTheFileHasNone) {
  json config = mistral4();
  config.erase("rope_parameters");
  for (const ModelConfig& c :
       {parse_model_config(config, "config.json"), read_mistral4(with_rope({{"partial_rotary_factor", 0.5}})),
        read_mistral4(with_rope({{"max_position_embeddings", 77}}))}) {
    EXPECT_EQ(c.rope.scaling, RopeScaling::yarn);
    EXPECT_EQ(c.rope.factor, 128);
    EXPECT_EQ(c.rope.rotary_dim, 64);
    EXPECT_EQ(c.rope.query_growth, 0.1);
    EXPECT_EQ(c.rope.original_max_position, 8192);
    const double mscale = 0.1 * std::log(128) + 1;
    EXPECT_NEAR(c.attention_scale, mscale * mscale / std::sqrt(128), 1e-12);
  }
}

TEST(Mistral4, WholeQueriesGrowWithThePosition) {
  const RopeConfig rope{.original_max_position = 2, .rotary_dim = 4, .query_growth = 0.5};
  constexpr int64_t kHead = 10, kPositions = 5, kKeys = kPositions * 4;
  const std::vector<float> table = make_rope_table(rope, kHead, kPositions);
  ASSERT_EQ(std::ssize(table), rope_floats(rope, kHead, kPositions));
  ASSERT_EQ(std::ssize(table), 2 * kKeys + kPositions * 6);
  for (int64_t p = 0; p < kPositions; ++p) {
    const auto growth = static_cast<float>(1 + 0.5 * std::log1p(std::floor(static_cast<double>(p) / 2)));
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_NEAR(table[static_cast<size_t>(kKeys + p * 2 + i)], growth * table[static_cast<size_t>(p * 2 + i)], 1e-6);
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(table[static_cast<size_t>(2 * kKeys + p * 3 + i)], growth) << "cos of what does not turn";
      EXPECT_EQ(table[static_cast<size_t>(2 * kKeys + 3 * kPositions + p * 3 + i)], 0.0f);
    }
  }
}

TEST(Mistral4, FilesHaveAllExpertsOfALayerInTwoTensors) {
  for (const LayerLayout& layout : model_layouts(read_mistral4())) {
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.name.find(".experts.") == std::string::npos) continue;
      const bool down = tensor.name.ends_with("down_proj.weight");
      EXPECT_TRUE(tensor.stored.name.ends_with(down ? "mlp.experts.down_proj" : "mlp.experts.gate_up_proj"));
      EXPECT_EQ(tensor.stored.first_row, tensor.name.ends_with("up_proj.weight") ? 2048 : 0);
      EXPECT_EQ(tensor.stored.row_step, 1);
      EXPECT_FALSE(tensor.stored.transposed);
    }
  }
}

TEST(Mistral4, IsTheTextPartOfMistral3) {
  json text = mistral4();
  text.erase("num_hidden_layers");
  const json whole = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                      {"model_type", "mistral3"},
                      {"vision_config", json::object()},
                      {"text_config", text}};
  const ModelConfig c = parse_model_config(whole, "config.json");
  EXPECT_EQ(c.architecture, "Mistral4ForCausalLM");
  EXPECT_EQ(c.part_of, "Mistral3ForConditionalGeneration");
  EXPECT_EQ(c.layers, 36);
}

TEST(Mistral4, RefusesWhatWouldChangeTheMaths) {
  const auto refused = [](const json& more, std::initializer_list<std::string> words) {
    expect_error(ExitCode::bad_input, words, [&] { read_mistral4(more); });
  };
  refused({{"n_group", 2}}, {"n_group"});
  refused({{"norm_topk_prob", nullptr}}, {"norm_topk_prob", "null"});
  refused({{"rope_interleave", nullptr}}, {"rope_interleave", "null"});
  refused({{"original_max_position_embeddings", 9}}, {"original_max_position_embeddings", "9", "rope_parameters"});
  refused({{"topk_group", 2}}, {"topk_group"});
  refused({{"output_router_logits", true}}, {"output_router_logits"});
  refused({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}, {"rope_scaling"});
  refused({{"qk_nope_head_dim", 63}, {"v_head_dim", 64}}, {"head_dim", "even"});
  refused({{"sliding_window", 64}}, {"sliding_window"});
  refused(with_rope({{"rope_type", "default"}}), {"rope_type", "yarn"});
  refused(with_rope({{"partial_rotary_factor", 0.25}}), {"partial_rotary_factor", "qk_rope_head_dim"});
  refused(with_rope({{"llama_4_scaling_beta", nullptr}}), {"llama_4_scaling_beta", "missing"});
  refused(with_rope({{"llama_4_scaling_beta", -1.0}}), {"llama_4_scaling_beta"});
}

}  // namespace megatrain
