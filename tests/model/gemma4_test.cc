// Gemma 4's config.json: the contents of the 31B's and the 26B-A4B's, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "megatrain/io/json.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/layers/mixers/attention.h"
#include "megatrain/model/model.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Like Gemma 4 31B's, with fewer and narrower layers.
json gemma4_31b() {
  const json local = "sliding_attention", full = "full_attention";
  return {
      {"architectures", {"Gemma4ForCausalLM"}},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"attention_k_eq_v", true},
      {"bos_token_id", 2},
      {"dtype", "bfloat16"},
      {"enable_moe_block", false},
      {"eos_token_id", 1},
      {"final_logit_softcapping", 30.0},
      {"global_head_dim", 64},
      {"head_dim", 32},
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"hidden_size", 64},
      {"hidden_size_per_layer_input", 0},
      {"initializer_range", 0.02},
      {"intermediate_size", 96},
      {"layer_types", {local, local, full, local}},
      {"max_position_embeddings", 262144},
      {"model_type", "gemma4_text"},
      {"moe_intermediate_size", nullptr},
      {"num_attention_heads", 4},
      {"num_experts", nullptr},
      {"num_global_key_value_heads", 1},
      {"num_hidden_layers", 4},
      {"num_key_value_heads", 2},
      {"num_kv_shared_layers", 0},
      {"pad_token_id", 0},
      {"rms_norm_eps", 1e-06},
      {"rope_parameters",
       {{"full_attention", {{"partial_rotary_factor", 0.25}, {"rope_theta", 1000000.0}, {"rope_type", "proportional"}}},
        {"sliding_attention", {{"rope_theta", 10000.0}, {"rope_type", "default"}}}}},
      {"sliding_window", 1024},
      {"tie_word_embeddings", true},
      {"top_k_experts", nullptr},
      {"use_bidirectional_attention", "vision"},
      {"use_cache", true},
      {"use_double_wide_mlp", false},
      {"vocab_size", 100},
      {"vocab_size_per_layer_input", 100}};
}

ModelConfig parse_gemma4(const json& changes, const std::vector<std::string>& without = {}) {
  json object = gemma4_31b();
  object.update(changes);
  for (const std::string& key : without) object.erase(key);
  return parse_model_config(object, "config.json");
}

void gemma4_refused(const json& changes, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { parse_gemma4(changes); });
}

const json kExperts = {
    {"enable_moe_block", true}, {"num_experts", 8}, {"top_k_experts", 2}, {"moe_intermediate_size", 24}};

TEST(Gemma4, ReadsAsTransformersDoes) {
  const ModelConfig c = parse_gemma4(json::object());
  EXPECT_EQ(c.window, (std::vector<int64_t>{1024, 1024, 0, 0})) << "the last layer is global";
  EXPECT_EQ(c.attention_scale, 1);
  EXPECT_EQ(c.norm_offset, 0);
  EXPECT_EQ(c.logits_cap, 30);
  EXPECT_EQ(c.embedding_scale, 8);
  EXPECT_EQ(c.experts.count, 0);
  EXPECT_EQ(passed_over_fields(gemma4_31b(), "config.json"), std::vector<std::string>());
  const AttentionSizes local = attention_sizes(c, {.positions = 10}, 0),
                       full = attention_sizes(c, {.positions = 10}, 2);
  EXPECT_EQ(local.head_dim, 32);
  EXPECT_EQ(local.kv_heads, 2);
  EXPECT_FALSE(local.keys_are_values);
  EXPECT_EQ(full.head_dim, 64);
  EXPECT_EQ(full.kv_heads, 1);
  EXPECT_TRUE(full.keys_are_values);
  EXPECT_EQ(full.rope_at, 0);
  EXPECT_EQ(local.rope_at, 10 * 64) << "behind the tables of the larger heads";
  EXPECT_EQ(attention_shapes(c, 5).size(), 2u);
}

TEST(Gemma4, TurnsTheFirstPairsOfAGlobalHead) {
  const ModelConfig c = parse_gemma4(json::object());
  const std::vector<double> frequencies = rope_frequencies(c.rope, 64);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1);
  EXPECT_DOUBLE_EQ(frequencies[7], std::pow(1e6, -14.0 / 64)) << "the exponents are those of the whole head";
  for (size_t pair = 8; pair < 32; ++pair) EXPECT_EQ(frequencies[pair], 0);
}

TEST(Gemma4, AbsentFieldsAreWhatTransformersTakes) {
  const ModelConfig c =
      parse_gemma4({{"num_hidden_layers", 7}, {"attention_k_eq_v", false}},
                   {"layer_types", "global_head_dim", "head_dim", "num_key_value_heads", "sliding_window",
                    "rope_parameters", "final_logit_softcapping", "pad_token_id", "use_bidirectional_attention"});
  EXPECT_EQ(c.window, (std::vector<int64_t>{512, 512, 512, 512, 512, 0, 0}));
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.heads_of(5).head_dim, 512);
  EXPECT_EQ(c.heads_of(5).kv_heads, 4) << "num_global_key_value_heads needs attention_k_eq_v";
  EXPECT_EQ(c.logits_cap, 0);
  EXPECT_EQ(c.pad_id, 0);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.rope.proportion, 0.25);
  EXPECT_EQ(c.window_rope->theta, 1e4);
}

TEST(Gemma4, TakesHeadsOfLayersAsTransformersWritesThem) {
  const json heads = {{"head_dim", 48}, {"num_key_value_heads", 1}};
  const ModelConfig c = parse_gemma4({{"per_layer_config", {{"2", heads}, {"3", heads}}}});
  EXPECT_EQ(c.full_heads->head_dim, 48) << "global_head_dim is not read beside it";
  EXPECT_EQ(c.full_heads->kv_heads, 1);
  EXPECT_EQ(parse_gemma4({{"per_layer_config", json::object()}}).full_heads->head_dim, 32);
  EXPECT_EQ(parse_gemma4({{"per_layer_config", {{"02", heads}, {"03", heads}}}}).full_heads->head_dim, 48)
      << "numbers of equal width";
  gemma4_refused({{"per_layer_config", {{"3", heads}}}}, {"per_layer_config.2", "same heads"});
  gemma4_refused({{"per_layer_config", {{"0", heads}, {"2", heads}, {"3", heads}}}}, {"per_layer_config.0"});
  gemma4_refused({{"per_layer_config", {{"3", {{"intermediate_size", 5}}}}}}, {"per_layer_config.3", "intermediate"});
}

TEST(Gemma4, HasExpertsBesideAnMlp) {
  const ModelConfig c = parse_gemma4(kExperts);
  EXPECT_EQ(c.experts.count, 8);
  EXPECT_EQ(c.experts.chosen, 2);
  EXPECT_EQ(c.experts.gate.activation, Activation::gelu_tanh);
  EXPECT_TRUE(c.experts.in_layer(0));
  EXPECT_EQ(model_layouts(c, DType::bf16, {}, 3).size(), 2u + 4 * 2) << "all experts of a layer are in one record";
  json changes = kExperts;
  changes["top_k_experts"] = 9;
  gemma4_refused(changes, {"top_k_experts", "8 experts"});
}

TEST(Gemma4, LastLayersReadKeysOfTheLastLayerOfTheirKind) {
  const json local = "sliding_attention", full = "full_attention";
  const ModelConfig c = parse_gemma4({{"num_hidden_layers", 6},
                                      {"num_kv_shared_layers", 3},
                                      {"use_double_wide_mlp", true},
                                      {"layer_types", {local, full, local, local, full, full}}});
  const auto source = [&](int64_t layer) { return c.kv_source(layer); };
  EXPECT_EQ(source(0), -1);
  EXPECT_EQ(source(2), -1);
  EXPECT_EQ(source(3), 2);
  EXPECT_EQ(source(4), 1);
  EXPECT_EQ(source(5), 1);
  EXPECT_FALSE(c.gives_kv(0));
  EXPECT_TRUE(c.gives_kv(1));
  EXPECT_TRUE(c.gives_kv(2));
  EXPECT_FALSE(c.gives_kv(3));
  EXPECT_EQ(c.ff_of(2), 96);
  EXPECT_EQ(c.ff_of(3), 192);
  const ModelConfig few = c.with_layers({0, 1, 2, 3, 4});
  EXPECT_EQ(few.kv_readers, 2);
  EXPECT_EQ(few.kv_source(4), 1);
}

TEST(Gemma4, TakesItsSizesWhereLayersHaveInputs) {
  const ModelConfig c = parse_gemma4({{"hidden_size_per_layer_input", 8}});
  EXPECT_EQ(c.layer_input, 8);
  EXPECT_EQ(c.layer_input_cols, 32);
  EXPECT_EQ(c.with_layers({0, 2}).layer_input_cols, 32) << "a layer's record does not depend on how many there are";
  const std::vector<LayerLayout> layouts = model_layouts(c);
  EXPECT_EQ(layouts.size(), 2u + 4 * 2 + 2) << "of the first layer also what all layers share, and its table";
  EXPECT_EQ(layouts[4].tensors.front().name, "model.embed_tokens_per_layer.weight");
  expect_error(ExitCode::bad_input, {"vocab_size_per_layer_input", "262144"}, [] {
    parse_gemma4(json::object(), {"hidden_size_per_layer_input", "vocab_size_per_layer_input"});
  });
}

TEST(Gemma4, NeverTrainsALayersScale) {
  for (const json& inputs : {json{{"hidden_size_per_layer_input", 0}}, json{{"hidden_size_per_layer_input", 4}}}) {
    for (const TrainRules& rules : {TrainRules{}, TrainRules{.train_only = {"*"}}}) {
      for (const LayerLayout& layout : model_layouts(parse_gemma4(inputs), DType::bf16, rules)) {
        for (const TensorSpec& tensor : layout.tensors)
          EXPECT_EQ(tensor.state_offset >= 0, !tensor.name.ends_with("layer_scalar")) << tensor.name;
      }
    }
  }
}

TEST(Gemma4, RefusesWhatItCannotDo) {
  gemma4_refused({{"num_kv_shared_layers", 4}}, {"num_kv_shared_layers", "num_hidden_layers (4)"});
  gemma4_refused({{"num_kv_shared_layers", 2}}, {"layer 2", "full_attention"});
  gemma4_refused({{"hidden_size_per_layer_input", 8}, {"vocab_size_per_layer_input", 90}},
                 {"vocab_size_per_layer_input", "90", "100"});
  json inputs = kExperts;
  inputs["hidden_size_per_layer_input"] = 8;
  gemma4_refused(inputs, {"hidden_size_per_layer_input", "experts"});
  gemma4_refused({{"use_bidirectional_attention", "all"}}, {"use_bidirectional_attention", "causal"});
  gemma4_refused({{"hidden_activation", "silu"}}, {"hidden_activation", "gelu_pytorch_tanh"});
  gemma4_refused({{"attention_bias", true}}, {"attention_bias"});
  gemma4_refused({{"global_head_dim", 1024}}, {"1024", "512"});
  gemma4_refused({{"num_global_key_value_heads", 3}}, {"3 key heads", "num_attention_heads"});
  gemma4_refused({{"sliding_window", nullptr}}, {"sliding_window"});
  gemma4_refused({{"rope_theta", 5.0}}, {"rope_theta"});
  gemma4_refused({{"rope_parameters", {{"rope_type", "default"}}}}, {"rope_parameters", "sliding_attention"});
  json parameters = gemma4_31b().at("rope_parameters");
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    for (const char* field : {"rope_type", "rope_theta"}) {
      json with_null = parameters;
      with_null[kind][field] = nullptr;
      gemma4_refused({{"rope_parameters", with_null}}, {kind, field, "null"});
    }
  }
  parameters["full_attention"]["partial_rotary_factor"] = 1.5;
  gemma4_refused({{"rope_parameters", parameters}}, {"partial_rotary_factor", "1.5"});
  parameters["full_attention"] = {{"rope_type", "proportional"}, {"beta_fast", 3.0}};
  gemma4_refused({{"rope_parameters", parameters}}, {"beta_fast"});
}

}  // namespace

}  // namespace megatrain
