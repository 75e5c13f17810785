// What config.json means for SmolLM3, Seed-OSS, Ministral 3, GLM-4, EXAONE 4, Gemma 2 and Cohere, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/family.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/layers/rope_table.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

json small_json(const char* architecture, const char* type, const json& more) {
  json config = {{"architectures", {architecture}},
                 {"model_type", type},
                 {"vocab_size", 64},
                 {"hidden_size", 32},
                 {"intermediate_size", 48},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 8},
                 {"pad_token_id", nullptr}};
  config.update(more);
  return config;
}

// A family under test: parse() and refused() take the fields that differ from its minimum.
struct SmallFamily {
  const char *architecture, *type;
  json always = json::object();

  ModelConfig parse(const json& more = json::object()) const {
    json config = small_json(architecture, type, always);
    config.update(more);
    return parse_model_config(config, "config.json");
  }
  void refused(const json& more, std::initializer_list<std::string> parts) const {
    expect_error(ExitCode::bad_input, parts, [&] { parse(more); });
  }
  // Elements of a layer's norms, by name without the layer.
  std::map<std::string, int64_t> norms() const {
    const ModelConfig c = parse();
    std::map<std::string, int64_t> found;
    const std::vector<std::vector<TensorSpec>> records = family_of(c).tensors(c, 0);
    for (const TensorSpec& tensor : records.front()) {
      if (tensor.role == TensorRole::norm) found[tensor.name.substr(sizeof "model.layers.0." - 1)] = tensor.cols;
    }
    return found;
  }
};

const SmallFamily kSmolLm3{"SmolLM3ForCausalLM", "smollm3"};
const SmallFamily kSeedOss{"SeedOssForCausalLM", "seed_oss"};
const SmallFamily kMinistral3{"Ministral3ForCausalLM", "ministral3"};
const SmallFamily kGlm4{"Glm4ForCausalLM", "glm4"};
const SmallFamily kGlm{"GlmForCausalLM", "glm"};
const SmallFamily kExaone4{"Exaone4ForCausalLM", "exaone4"};
const SmallFamily kGemma2{"Gemma2ForCausalLM", "gemma2"};
const SmallFamily kCohere{"CohereForCausalLM", "cohere"};
const SmallFamily kCohere2{"Cohere2ForCausalLM", "cohere2"};

using Flags = std::vector<bool>;
using Windows = std::vector<int64_t>;

}  // namespace

TEST(SmolLm3, EveryFourthLayerHasNoRopeUnlessTheFileListsThem) {
  EXPECT_EQ(kSmolLm3.parse().no_rope, (Flags{false, false, false, true}));
  EXPECT_EQ(kSmolLm3.parse({{"no_rope_layer_interval", 2}}).no_rope, (Flags{false, true, false, true}));
  const ModelConfig c = kSmolLm3.parse({{"no_rope_layers", {0, 1, 1, 0}}, {"no_rope_layer_interval", 2}});
  EXPECT_EQ(c.no_rope, (Flags{true, false, false, true}));
  EXPECT_EQ(c.with_layers({0, 1}).no_rope, (Flags{true, false}));
  EXPECT_NE(family_of(c).kind(c, 0), family_of(c).kind(c, 1));
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.rope.theta, 2e6);
  kSmolLm3.refused({{"no_rope_layers", {0, 1, 1}}}, {"no_rope_layers", "4 layers"});
  kSmolLm3.refused({{"no_rope_layers", {0, 1, 1, 2}}}, {"no_rope_layers", "4 layers"});
}

TEST(SmolLm3, AWindowIsWhereThereIsNoRopeUnlessLayerTypesSayOtherwise) {
  EXPECT_EQ(kSmolLm3.parse({{"sliding_window", 6}}).window, Windows(4, 0));
  EXPECT_EQ(kSmolLm3.parse({{"sliding_window", 6}, {"use_sliding_window", true}}).window, (Windows{0, 0, 0, 6}));
  kSmolLm3.refused({{"layer_types", {"full_attention", "full_attention", "full_attention", "sliding_attention"}}},
                   {"layer_types[3]", "sliding_window"});
}

TEST(SeedOss, BiasesAreThoseOfQueriesKeysAndValuesUnlessTheFileSaysOtherwise) {
  const ModelConfig c = kSeedOss.parse();
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.o_bias || c.mlp_bias);
  EXPECT_TRUE(kSeedOss.parse({{"attention_out_bias", true}}).o_bias);
}

TEST(SeedOss, TheDropoutOfReleasesIsReadAndTold) {
  const json more = {{"attention_dropout", 0.1}, {"residual_dropout", 0.1}};
  EXPECT_EQ(kSeedOss.parse(more).heads, 4);
  const std::vector<std::string> notes = passed_over_fields(small_json("SeedOssForCausalLM", "seed_oss", more), "here");
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("'attention_dropout' is 0.1"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("'residual_dropout' is 0.1"), std::string::npos) << notes[1];
}

TEST(Ministral3, QueriesGrowBeyondTheOriginalContext) {
  const ModelConfig c = kMinistral3.parse();  // transformers' rope_parameters if there are none
  EXPECT_EQ(c.rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(c.rope.query_growth, 0.1);
  EXPECT_EQ(c.rope.original_max_position, 16384);
  EXPECT_EQ(c.rope.attention_factor, 1);

  RopeConfig rope{.original_max_position = 2, .query_growth = 0.5};
  const std::vector<float> table = make_rope_table(rope, 4, 6);
  ASSERT_EQ(table.size(), 4u * 6 * 2);
  const size_t queries = 2 * 6 * 2;  // behind cos and sin of the keys
  for (size_t p = 0; p < 6; ++p) {
    const double growth = 1 + 0.5 * std::log(1 + static_cast<double>(p / 2));
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(table[queries + p * 2 + i], table[p * 2 + i] * growth, 1e-6) << p;
  }
}

TEST(Ministral3, RopeParametersWithoutWhatGrowthNeedsAreRefused) {
  const json rope = {{"rope_type", "yarn"}, {"rope_theta", 1e6}, {"factor", 4.0}};
  json more = {{"rope_parameters", rope}};
  more["rope_parameters"]["original_max_position_embeddings"] = 16;
  kMinistral3.refused(more, {"llama_4_scaling_beta", "missing"});
  more["rope_parameters"]["llama_4_scaling_beta"] = -0.1;
  kMinistral3.refused(more, {"llama_4_scaling_beta", "-0.1"});
  more["rope_parameters"]["llama_4_scaling_beta"] = 0.1;
  EXPECT_EQ(kMinistral3.parse(more).rope.original_max_position, 16);
  kMinistral3.refused({{"rope_scaling", rope}}, {"rope_scaling"});
  kMinistral3.refused({{"attention_bias", true}}, {"attention_bias"});
}

// transformers takes this field before that of rope_parameters.
TEST(Ministral3, AnOriginalContextBesideRopeParametersMustBeTheirs) {
  const json same = {{"original_max_position_embeddings", 16384}};
  EXPECT_EQ(kMinistral3.parse(same).rope.original_max_position, 16384);
  kMinistral3.refused({{"original_max_position_embeddings", 9}},
                      {"original_max_position_embeddings", "9", "16384", "rope_parameters"});
}

TEST(Glm4, HalfOfAHeadTurnsInPairsUnlessTheFileSaysOtherwise) {
  const ModelConfig c = kGlm4.parse();
  EXPECT_TRUE(c.rope.pairs);
  EXPECT_EQ(c.rope.rotary_dim, 4);
  EXPECT_EQ(kGlm4.parse({{"partial_rotary_factor", 0.75}}).rope.rotary_dim, 6);
  const json inside = {{"rope_type", "default"}, {"rope_theta", 100.0}, {"partial_rotary_factor", 0.25}};
  EXPECT_EQ(kGlm4.parse({{"rope_parameters", inside}}).rope.rotary_dim, 2);
  kGlm4.refused({{"rope_parameters", inside}, {"partial_rotary_factor", 0.5}},
                {"partial_rotary_factor", "0.25", "0.5"});
  kGlm4.refused({{"partial_rotary_factor", 0.4}}, {"partial_rotary_factor", "3", "even"});
  kGlm4.refused({{"partial_rotary_factor", 2.0}}, {"partial_rotary_factor", "at most 8"});
}

TEST(Glm4, OnlyThe0414ReleasesHaveNormsBehindTheBranches) {
  EXPECT_EQ(kGlm4.norms(), (std::map<std::string, int64_t>{{"input_layernorm.weight", 32},
                                                           {"post_attention_layernorm.weight", 32},
                                                           {"post_mlp_layernorm.weight", 32},
                                                           {"post_self_attn_layernorm.weight", 32}}));
  EXPECT_EQ(kGlm.norms(),
            (std::map<std::string, int64_t>{{"input_layernorm.weight", 32}, {"post_attention_layernorm.weight", 32}}));
}

TEST(Exaone4, LayersWithoutAWindowHaveNoRopeIfOthersHaveOne) {
  const ModelConfig c = kExaone4.parse();
  EXPECT_EQ(c.window, (Windows{4096, 4096, 4096, 0}));
  EXPECT_EQ(c.no_rope, (Flags{false, false, false, true}));
  const ModelConfig none = kExaone4.parse({{"sliding_window", nullptr}, {"sliding_window_pattern", nullptr}});
  EXPECT_EQ(none.window, Windows(4, 0));
  EXPECT_EQ(none.no_rope, Flags(4, false));
  kExaone4.refused({{"sliding_window_pattern", "LLLG"}}, {"sliding_window_pattern", "LLLG", "layer_types"});
  kExaone4.refused({{"sliding_window", nullptr},
                    {"layer_types", {"sliding_attention", "full_attention", "full_attention", "full_attention"}}},
                   {"sliding_window", "null"});
  EXPECT_EQ(kExaone4.norms(), (std::map<std::string, int64_t>{{"post_attention_layernorm.weight", 32},
                                                              {"post_feedforward_layernorm.weight", 32},
                                                              {"self_attn.k_norm.weight", 8},
                                                              {"self_attn.q_norm.weight", 8}}));
}

TEST(Gemma2, EverySecondLayerIsLocalAndTheFinalLogitsAreCapped) {
  const ModelConfig c = kGemma2.parse();
  EXPECT_EQ(c.window, (Windows{4096, 0, 4096, 0}));
  EXPECT_EQ(c.logits_cap, 30);
  EXPECT_EQ(kGemma2.parse({{"final_logit_softcapping", nullptr}}).logits_cap, 0);
  EXPECT_EQ(c.norm_offset, 1);
  EXPECT_TRUE(c.tied);
}

TEST(Gemma2, TheOlderNameOfTheWindowMustAgreeWithTheNewer) {
  EXPECT_EQ(kGemma2.parse({{"sliding_window", 6}, {"sliding_window_size", 6}}).window[0], 6);
  kGemma2.refused({{"sliding_window", 6}, {"sliding_window_size", 8}}, {"sliding_window_size", "8"});
}

TEST(Gemma2, AttentionsLogitsAreCappedAsTheFileSays) {
  EXPECT_EQ(kGemma2.parse().attention_cap, 50);
  EXPECT_EQ(kGemma2.parse({{"attn_logit_softcapping", 20.0}}).attention_cap, 20);
  EXPECT_EQ(kGemma2.parse({{"attn_logit_softcapping", nullptr}}).attention_cap, 0);
  kGemma2.refused({{"attn_logit_softcapping", -1.0}}, {"attn_logit_softcapping", "-1"});
}

TEST(Cohere, LayersOfTheSecondGenerationHaveAWindowAndRopeOrNeither) {
  const ModelConfig c = kCohere2.parse({{"sliding_window", 6}});
  EXPECT_EQ(c.window, (Windows{6, 6, 6, 0}));
  EXPECT_EQ(c.no_rope, (Flags{false, false, false, true}));
  EXPECT_EQ(kCohere2.parse({{"sliding_window_pattern", 2}}).no_rope, (Flags{false, true, false, true}));
  EXPECT_EQ(kCohere2.parse({{"layer_types", std::vector<std::string>(4, "full_attention")}}).no_rope, Flags(4, true));
  EXPECT_EQ(kCohere2.parse({{"_sliding_window_pattern", 2}}).no_rope, (Flags{false, true, false, true}));
  kCohere2.refused({{"_sliding_window_pattern", 2}, {"sliding_window_pattern", 4}}, {"_sliding_window_pattern"});
  EXPECT_TRUE(kCohere.parse().no_rope.empty());
  kCohere2.refused({{"sliding_window", nullptr}}, {"sliding_window", "local"});
}

TEST(Cohere, EachGenerationHasItsOwnAbsentThetaAndNoNullScale) {
  EXPECT_EQ(kCohere.parse().rope.theta, 5e5);
  EXPECT_EQ(kCohere.parse({{"rope_parameters", {{"rope_type", "default"}}}}).rope.theta, 5e5);
  EXPECT_EQ(kCohere2.parse().rope.theta, 1e4);
  for (const char* key : {"logit_scale", "layer_norm_eps"}) kCohere.refused({{key, nullptr}}, {key, "null"});
}

TEST(Cohere, OneLayerNormIsBeforeAttentionAndMlp) {
  for (const SmallFamily& family : {kCohere, kCohere2}) {
    const ModelConfig c = family.parse();
    EXPECT_TRUE(c.norm_centred && c.tied && c.rope.pairs);
    EXPECT_EQ(c.logits_scale, 0.0625);
    EXPECT_EQ(family.norms(), (std::map<std::string, int64_t>{{"input_layernorm.weight", 32}}));
  }
}

TEST(Cohere, NormsWithAWeightForEachHeadAreRefused) {
  kCohere.refused({{"use_qk_norm", true}}, {"use_qk_norm", "each head"});
  kCohere2.refused({{"use_parallel_block", false}}, {"use_parallel_block"});
  kCohere2.refused({{"position_embedding_type", "alibi"}}, {"position_embedding_type"});
}

}  // namespace megatrain
