// What config.json means for Nemotron-H, Falcon-H1, LFM2 and MiniMax M2, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "megatrain/io/json.h"
#include "megatrain/model/family.h"
#include "megatrain/model/model.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/model/trained/adapter_checks.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;
using Flags = std::vector<bool>;

// A family under test, with the fields that its smallest model needs.
struct Hybrid {
  const char *architecture, *type;
  json always;

  json text(const json& more = json::object()) const {
    json config = {{"architectures", {architecture}},
                   {"model_type", type},
                   {"vocab_size", 64},
                   {"hidden_size", 32},
                   {"intermediate_size", 24},
                   {"num_hidden_layers", 4},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"head_dim", 8},
                   {"pad_token_id", nullptr}};
    config.update(always);
    config.update(more);
    return config;
  }
  ModelConfig parse(const json& more = json::object()) const { return parse_model_config(text(more), "config.json"); }
  void refused(const json& more, std::initializer_list<std::string> parts) const {
    expect_error(ExitCode::bad_input, parts, [&] { parse(more); });
  }
  // The tensors of a layer's first record, without its prefix.
  std::vector<std::string> names(int64_t layer) const {
    const ModelConfig c = parse();
    std::vector<std::string> found;
    const std::vector<std::vector<TensorSpec>> lists = family_of(c).tensors(c, layer);
    for (const TensorSpec& tensor : lists.front()) found.push_back(tensor.name.substr(sizeof "model.layers.0." - 1));
    return found;
  }
};

const Hybrid kNemotron{"NemotronHForCausalLM",
                       "nemotron_h",
                       {{"hybrid_override_pattern", "ME*-"},
                        {"mamba_num_heads", 8},
                        {"mamba_head_dim", 6},
                        {"n_groups", 2},
                        {"ssm_state_size", 16},
                        {"n_routed_experts", 4},
                        {"moe_intermediate_size", 12},
                        {"moe_shared_expert_intermediate_size", 20}}};
const Hybrid kFalcon{"FalconH1ForCausalLM",
                     "falcon_h1",
                     {{"mamba_d_ssm", 48}, {"mamba_n_heads", 8}, {"mamba_d_head", 6}, {"mamba_d_state", 16}}};
const Hybrid kLfm2{"Lfm2ForCausalLM",
                   "lfm2",
                   {{"layer_types", {"conv", "conv", "full_attention", "conv"}}, {"block_auto_adjust_ff_dim", false}}};
const Hybrid kMiniMax{"MiniMaxM2ForCausalLM", "minimax_m2", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}}};

}  // namespace

TEST(NemotronH, EveryLayerIsWhatItsLetterSays) {
  const ModelConfig c = kNemotron.parse();
  EXPECT_EQ(c.mamba2.layers, (Flags{true, false, false, false}));
  EXPECT_EQ(c.experts.layers, (Flags{false, true, false, false}));
  EXPECT_EQ(c.no_mixer, (Flags{false, true, false, true}));
  EXPECT_TRUE(c.attends(2));
  EXPECT_FALSE(c.rotates(2));
  EXPECT_EQ(c.activation, Activation::relu_squared);
  json listed = kNemotron.text({{"layers_block_type", {"mamba", "moe", "attention", "mlp"}}});
  listed.erase("hybrid_override_pattern");
  listed.erase("num_hidden_layers");
  EXPECT_EQ(parse_model_config(listed, "config.json").no_mixer, c.no_mixer);
  kNemotron.refused({{"hybrid_override_pattern", "MEX-"}}, {"hybrid_override_pattern", "MEX-"});
  kNemotron.refused({{"hybrid_override_pattern", "ME*"}}, {"num_hidden_layers", "has 3"});
  kNemotron.refused({{"layers_block_type", {"mamba", "moe", "conv", "mlp"}}}, {"layers_block_type[2]", "conv"});
}

TEST(NemotronH, ALayersTensorsAreThoseOfItsOnlyBranch) {
  EXPECT_EQ(kNemotron.names(0), (std::vector<std::string>{"norm.weight", "mixer.in_proj.weight", "mixer.conv1d.weight",
                                                          "mixer.conv1d.bias", "mixer.dt_bias", "mixer.A_log",
                                                          "mixer.D", "mixer.norm.weight", "mixer.out_proj.weight"}));
  EXPECT_EQ(kNemotron.names(1),
            (std::vector<std::string>{"norm.weight", "mixer.gate.weight", "mixer.shared_experts.up_proj.weight",
                                      "mixer.shared_experts.down_proj.weight"}));
  EXPECT_EQ(kNemotron.names(2), (std::vector<std::string>{"norm.weight", "mixer.q_proj.weight", "mixer.k_proj.weight",
                                                          "mixer.v_proj.weight", "mixer.o_proj.weight"}));
  EXPECT_EQ(kNemotron.names(3),
            (std::vector<std::string>{"norm.weight", "mixer.up_proj.weight", "mixer.down_proj.weight"}));
}

TEST(NemotronH, TheStepIsAtLeastWhatTransformersTakes) {
  EXPECT_EQ(kNemotron.parse().mamba2.least_step, 0.001);
  const json none = {0.0, {{"__float__", "Infinity"}}};
  EXPECT_EQ(kNemotron.parse({{"time_step_min", 0.5}, {"time_step_limit", none}}).mamba2.least_step, 0.5);
  kNemotron.refused({{"time_step_limit", {0.0, 0.1}}}, {"time_step_limit", "time_step_min"});
}

TEST(NemotronH, WhatItDoesNotComputeIsRefused) {
  kNemotron.refused({{"moe_latent_size", 16}}, {"moe_latent_size"});
  kNemotron.refused({{"mlp_hidden_act", "silu"}}, {"mlp_hidden_act"});
  kNemotron.refused({{"mlp_bias", true}}, {"mlp_bias"});
  kNemotron.refused({{"residual_in_fp32", true}}, {"residual_in_fp32"});
  kNemotron.refused({{"sliding_window", 64}}, {"sliding_window"});
}

TEST(FalconH1, MultipliersThatMeetAreOne) {
  const ModelConfig c = kFalcon.parse({{"attention_in_multiplier", 2.0},
                                       {"attention_out_multiplier", 0.5},
                                       {"key_multiplier", 0.25},
                                       {"ssm_in_multiplier", 2.0},
                                       {"ssm_multipliers", {1.0, 0.5, 0.25, 3.0, 4.0}},
                                       {"ssm_out_multiplier", 0.75},
                                       {"mlp_multipliers", {2.0, 3.0}},
                                       {"embedding_multiplier", 5.0},
                                       {"lm_head_multiplier", 0.5}});
  EXPECT_DOUBLE_EQ(c.attention_scale, 2 * 2 * 0.25 / std::sqrt(8.0));
  EXPECT_EQ(c.scales.attention_out, 1);
  EXPECT_EQ(c.mamba2.scales, (std::array<double, 5>{2, 1, 0.5, 6, 8}));
  EXPECT_EQ(c.scales.mamba_out, 0.75);
  EXPECT_EQ(c.scales.mlp_in, 2);
  EXPECT_EQ(c.scales.mlp_out, 1.5);
  EXPECT_EQ(c.embedding_scale, 5);
  EXPECT_EQ(c.logits_scale, 0.5);
  kFalcon.refused({{"ssm_multipliers", {1.0, 2.0}}}, {"ssm_multipliers", "5 positive"});
  kFalcon.refused({{"mlp_multipliers", {0.0, 2.0}}}, {"mlp_multipliers", "2 positive"});
}

TEST(FalconH1, EveryLayerHasMambaBesideAttention) {
  const ModelConfig c = kFalcon.parse();
  EXPECT_EQ(c.mamba2.layers, Flags(4, true));
  EXPECT_TRUE(c.attends(0));
  EXPECT_FALSE(c.mamba2.normed);
  EXPECT_FALSE(kFalcon.parse({{"mamba_rms_norm", true}}).mamba2.gate_first);
  EXPECT_TRUE(kFalcon.parse({{"mamba_rms_norm", true}, {"mamba_norm_before_gate", false}}).mamba2.gate_first);
  EXPECT_EQ(family_of(c).kind(c, 0), "mamba 2 and attention");
  for (const char* bias : {"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"})
    kFalcon.refused({{bias, true}}, {bias});
  kFalcon.refused({{"attn_layer_indices", {1}}}, {"attn_layer_indices"});
  kFalcon.refused({{"mamba_d_ssm", 40}}, {"mamba_d_ssm", "40"});
}

TEST(Lfm2, LayersAreConvolutionsUnlessTheFileNamesAttention) {
  const ModelConfig c = kLfm2.parse();
  EXPECT_EQ(c.gated_conv.layers, (Flags{true, true, false, true}));
  EXPECT_EQ(c.gated_conv.taps, 3);
  EXPECT_TRUE(c.attends(2));
  EXPECT_EQ(kLfm2.parse({{"layer_types", nullptr}, {"full_attn_idxs", {0, 3}}}).gated_conv.layers,
            (Flags{false, true, true, false}));
  kLfm2.refused({{"layer_types", {"conv", "conv", "mamba", "conv"}}}, {"layer_types[2]", "mamba"});
  kLfm2.refused({{"layer_types", {"conv"}}}, {"layer_types", "4 layers"});
  kLfm2.refused({{"conv_L_cache", 5}}, {"conv_L_cache", "2 to 4"});
  kLfm2.refused({{"conv_dim", 16}}, {"conv_dim", "32"});
}

TEST(Lfm2, TheMlpIsAsWideAsTransformersMakesIt) {
  EXPECT_EQ(kLfm2.parse().ff, 24);
  EXPECT_EQ(kLfm2.parse({{"block_auto_adjust_ff_dim", true}}).ff, 256);
  EXPECT_EQ(kLfm2.parse({{"block_auto_adjust_ff_dim", true}, {"block_ff_dim", 12288}}).ff, 8192);
  EXPECT_EQ(kLfm2.parse({{"block_auto_adjust_ff_dim", true}, {"block_ff_dim", 6656}}).ff, 4608);
  EXPECT_EQ(kLfm2.parse({{"block_auto_adjust_ff_dim", true}, {"block_ffn_dim_multiplier", nullptr}}).ff, 16);
}

TEST(MiniMaxM2, APartOfEachHeadRotatesUnderEitherName) {
  EXPECT_EQ(kMiniMax.parse({{"rotary_dim", 4}}).rope.rotary_dim, 4);
  EXPECT_EQ(
      kMiniMax.parse({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}).rope.rotary_dim,
      4);
  const ModelConfig c = kMiniMax.parse();
  EXPECT_TRUE(c.qk_norm && c.qk_norm_spans && c.experts.choice_bias);
  EXPECT_EQ(c.experts.score, RouterScore::sigmoid);
  kMiniMax.refused({{"attn_type_list", {1, 0, 1, 1}}}, {"attn_type_list"});
  kMiniMax.refused({{"router_jitter_noise", 0.1}}, {"router_jitter_noise"});
  kMiniMax.refused({{"scoring_func", "softmax"}}, {"scoring_func"});
}

// What PEFT 0.21.2 was seen to refuse: out_proj, by the model_type.
TEST(Hybrids, AdaptersThatPeftRefusesAreNamed) {
  for (const Hybrid& hybrid : {kNemotron, kFalcon}) {
    const ModelConfig c = hybrid.parse();
    const auto unlike = [&](AdapterRules rules) {
      rules.rank = 2;
      return unlike_peft(rules, model_layouts(c, DType::f32, {.adapter = rules}), family_of(c).peft_joins_experts,
                         family_of(c).peft_refuses);
    };
    EXPECT_NE(unlike({.targets = {"out_proj"}}).find("adapter.exclude=out_proj"), std::string::npos);
    EXPECT_EQ(unlike({.targets = {"in_proj", "q_proj"}}), "");
  }
}

}  // namespace megatrain
