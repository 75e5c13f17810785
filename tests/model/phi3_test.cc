// Phi-3's config.json: the contents of Phi-4-mini's, and what is refused.
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

// Like Phi-4-mini's, with fewer and narrower layers.
json phi4_mini() {
  const std::vector<double> short_factor(48, 1.0), long_factor(48, 2.5);
  return {{"architectures", {"Phi3ForCausalLM"}},
          {"model_type", "phi3"},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"embd_pdrop", 0.0},
          {"full_attn_mod", 1},
          {"hidden_act", "silu"},
          {"hidden_size", 384},
          {"initializer_range", 0.02},
          {"intermediate_size", 512},
          {"interpolate_factor", 1},
          {"lm_head_bias", false},
          {"max_position_embeddings", 131072},
          {"mlp_bias", false},
          {"num_attention_heads", 3},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 1},
          {"original_max_position_embeddings", 4096},
          {"pad_token_id", 99},
          {"partial_rotary_factor", 0.75},
          {"resid_pdrop", 0.0},
          {"rms_norm_eps", 1e-05},
          {"rope_scaling", {{"type", "longrope"}, {"short_factor", short_factor}, {"long_factor", long_factor}}},
          {"rope_theta", 10000.0},
          {"sliding_window", 262144},
          {"tie_word_embeddings", true},
          {"torch_dtype", "bfloat16"},
          {"vocab_size", 100}};
}

ModelConfig parse(const json& changes) {
  json object = phi4_mini();
  object.update(changes);
  return parse_model_config(object, "config.json");
}

void refused(const json& changes, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { parse(changes); });
}

json scaling_with(const json& changes) {
  json scaling = phi4_mini().at("rope_scaling");
  scaling.update(changes);
  return {{"rope_scaling", scaling}};
}

}  // namespace

TEST(Phi3, ReadsAsTransformersDoes) {
  const ModelConfig c = parse(json::object());
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.rope.turning(c.head_dim), 96);
  EXPECT_EQ(c.rope.scaling, RopeScaling::longrope);
  EXPECT_EQ(c.rope.long_above(), 4096);
  EXPECT_EQ(c.rope.long_factor, std::vector<double>(48, 2.5));
  EXPECT_DOUBLE_EQ(c.rope.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
  EXPECT_EQ(c.window, std::vector<int64_t>(2, 262144));
  EXPECT_EQ(c.pad_id, 99);
  EXPECT_EQ(passed_over_fields(phi4_mini(), "config.json"), std::vector<std::string>());
}

TEST(Phi3, AbsentFieldsAreWhatTransformersTakes) {
  const ModelConfig c = parse_model_config({{"model_type", "phi3"},
                                            {"hidden_size", 64},
                                            {"intermediate_size", 64},
                                            {"num_hidden_layers", 1},
                                            {"num_attention_heads", 4},
                                            {"vocab_size", 32064}},
                                           "config.json");
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.pad_id, 32000);
  EXPECT_EQ(c.max_position, 4096);
  EXPECT_EQ(c.window, std::vector<int64_t>(1, 0));
  EXPECT_EQ(c.rope.turning(c.head_dim), 16);
  EXPECT_EQ(c.rope.long_above(), 0);
}

TEST(Phi3, OlderNamesOfLongropeMeanIt) {
  for (const char* name : {"su", "yarn"})
    EXPECT_EQ(parse(scaling_with({{"type", name}})).rope.scaling, RopeScaling::longrope) << name;
  EXPECT_DOUBLE_EQ(parse(scaling_with({{"attention_factor", 1.5}})).rope.attention_factor, 1.5);
  EXPECT_DOUBLE_EQ(parse(scaling_with({{"factor", 1.0}})).rope.attention_factor, 1.0);
}

// transformers uses 4096 beside it, and follows that.
TEST(Phi3, AnOriginalLengthInsideRopeAloneIsRefused) {
  json object = phi4_mini();
  object.erase("original_max_position_embeddings");
  object["rope_scaling"]["original_max_position_embeddings"] = 20;
  expect_error(ExitCode::bad_input, {"original_max_position_embeddings", "20", "4096"},
               [&] { parse_model_config(object, "config.json"); });
  object["rope_scaling"]["original_max_position_embeddings"] = 4096;
  EXPECT_EQ(parse_model_config(object, "config.json").rope.original_max_position, 4096);
}

TEST(Phi3, AnOriginalLengthOfOneIsRefusedWhereItsLogarithmDivides) {
  json object = phi4_mini();
  object["original_max_position_embeddings"] = 1;
  expect_error(ExitCode::bad_input, {"original_max_position_embeddings", "1"},
               [&] { parse_model_config(object, "config.json"); });
  object["rope_scaling"]["attention_factor"] = 1.2;
  EXPECT_EQ(parse_model_config(object, "config.json").rope.attention_factor, 1.2);
  object["original_max_position_embeddings"] = nullptr;
  expect_error(ExitCode::bad_input, {"original_max_position_embeddings", "null"},
               [&] { parse_model_config(object, "config.json"); });
}

TEST(Phi3, RefusesWhatItCannotDo) {
  refused(scaling_with({{"type", "linear"}}), {"linear", "longrope"});
  refused(scaling_with({{"rope_type", "default"}}), {"rope_type", "longrope"});
  refused(scaling_with({{"long_factor", {1.0, 2.0}}}), {"long_factor", "48"});
  refused(scaling_with({{"short_factor", std::vector<double>(48, 0.0)}}), {"short_factor", "above 0"});
  refused(scaling_with({{"beta_fast", 2}}), {"beta_fast"});
  refused(scaling_with({{"original_max_position_embeddings", 2048}}), {"original_max_position_embeddings", "2048"});
  refused({{"rope_parameters", {{"rope_theta", 5.0}}}}, {"rope_theta", "5.0"});
  refused({{"partial_rotary_factor", 0.7}}, {"partial_rotary_factor", "89"});
  refused({{"partial_rotary_factor", 1.5}}, {"partial_rotary_factor"});
  refused({{"resid_pdrop", 0.1}}, {"resid_pdrop"});
  refused({{"full_attn_mod", 2}}, {"full_attn_mod"});
  refused({{"lm_head_bias", true}}, {"lm_head_bias"});
  refused({{"layer_types", {"full_attention", "full_attention"}}}, {"layer_types"});
  refused({{"use_sliding_window", true}}, {"use_sliding_window"});
  json object = phi4_mini();
  object.erase("pad_token_id");
  expect_error(ExitCode::bad_input, {"pad_token_id", "32000", "100"},
               [&] { parse_model_config(object, "config.json"); });
}

TEST(Phi3, FieldsOfItsOwnAreRefusedElsewhere) {
  json object = phi4_mini();
  object.update({{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}, {"rope_scaling", nullptr}});
  object["sliding_window"] = nullptr;
  object["partial_rotary_factor"] = 1.0;
  expect_error(ExitCode::bad_input, {"embd_pdrop"}, [&] { parse_model_config(object, "config.json"); });
}

TEST(Phi3, FusedProductsAreOneTensorEach) {
  const LayerLayout layout = model_layouts(parse(json::object()))[1];
  std::vector<std::string> names;
  for (const TensorSpec& tensor : layout.tensors) names.push_back(tensor.name.substr(sizeof("model.layers.0.") - 1));
  EXPECT_EQ(names, (std::vector<std::string>{"input_layernorm.weight", "self_attn.qkv_proj.weight",
                                             "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                                             "mlp.gate_up_proj.weight", "mlp.down_proj.weight"}));
  EXPECT_EQ(layout.tensors[1].rows, 3 * 128 + 2 * 128);
  EXPECT_EQ(layout.tensors[4].rows, 2 * 512);
}

}  // namespace megatrain
