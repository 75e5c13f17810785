// Patterns over tensor names, which of them are refused, and how frozen tensors change the layouts.
#include "megatrain/model/trained/train_rules.h"
#include "megatrain/model/parse_config.h"

#include <algorithm>
#include <map>

#include "megatrain/io/json.h"
#include "megatrain/model/family.h"
#include "megatrain/model/layers/linear.h"
#include "megatrain/model/model.h"
#include "megatrain/model/trained/adapter_checks.h"
#include "megatrain/tensor/block_operand.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

ModelConfig model(bool tied = false, bool bias = false) {
  return parse_model_config({{"architectures", {"LlamaForCausalLM"}},
                             {"vocab_size", 50},
                             {"hidden_size", 24},
                             {"intermediate_size", 36},
                             {"num_hidden_layers", 12},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"attention_bias", bias},
                             {"tie_word_embeddings", tied}},
                            "config.json");
}

std::set<std::string> trained(const std::vector<LayerLayout>& layouts) {
  std::set<std::string> names;
  for (const LayerLayout& layout : layouts) {
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.trainable) names.insert(tensor.name);
    }
  }
  return names;
}

LayerLayout block(const TrainRules& rules, bool bias = false) {
  return model_layouts(model(false, bias), DType::bf16, rules)[1];
}

}  // namespace

TEST(Pattern, MatchesWholeNamesByTextStarsSetsAndSingleCharacters) {
  const std::string name = "model.layers.12.self_attn.q_proj.weight";
  for (const char* pattern :
       {"*", "model.*", "*.weight", "*q_proj*", "model.layers.1?.*", "model.layers.[0-9][0-9].*", "*.[kq]_proj.*",
        "*.[!v]_proj.weight", "model.layers.12.self_attn.q_proj.weight", "model.layers.[x0-37]2.**", "*.*.*"})
    EXPECT_TRUE(matches_pattern(pattern, name)) << pattern;
  for (const char* pattern : {"", "model", "model.layers.1.*", "model.layers.[0-9].*", "*.bias", "q_proj",
                              "*.[!q]_proj.*", "*.weight?", "MODEL.*", "model.layers.[3-9]2.*"})
    EXPECT_FALSE(matches_pattern(pattern, name)) << pattern;
}

TEST(Pattern, BehindACaretIsARegularExpressionForAWholeName) {
  EXPECT_TRUE(matches_pattern(R"(^model\.layers\.1[0-9]+\.(self_attn|mlp)\..*)", "model.layers.12.mlp.up_proj.weight"));
  EXPECT_TRUE(matches_pattern("^(?:lm_head\\.weight$).*", "lm_head.weight"));
  EXPECT_FALSE(matches_pattern("^lm_head", "lm_head.weight"));
  EXPECT_FALSE(matches_pattern("^head.*", "lm_head.weight"));
  const auto layouts = [](const char* pattern) {
    return trained(model_layouts(model(), DType::bf16, {.train_only = {pattern}}));
  };
  EXPECT_EQ(layouts("^.*\\.1\\.mlp\\.(up|down)_proj.*"),
            (std::set<std::string>{"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"}));
}

TEST(Freeze, OfBothListsATensorIsTrainedWhenTrainOnlyNamesItAndFreezeDoesNot) {
  EXPECT_EQ(trained(model_layouts(model(), DType::bf16,
                                  {.freeze = {"*.up_proj.*"}, .train_only = {"*.1.mlp.*", "lm_head.*"}})),
            (std::set<std::string>{"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight",
                                   "lm_head.weight"}));
  const auto all = trained(model_layouts(model()));
  auto others =
      trained(model_layouts(model(), DType::bf16, {.freeze = {"model.embed_tokens.*", "model.layers.[0-9].*"}}));
  for (const std::string& name : others) {
    EXPECT_TRUE(name.starts_with("model.layers.1") || name == "lm_head.weight" || name == "model.norm.weight") << name;
  }
  EXPECT_EQ(others.size(), 2u * 9 + 2);
  EXPECT_EQ(all.size(), 12u * 9 + 3);
}

TEST(Freeze, RefusesWhatMatchesNothingAndWhatLeavesNothingToTrain) {
  const auto refused = [](const TrainRules& rules, std::initializer_list<std::string> parts, bool tied = false) {
    expect_error(ExitCode::bad_config, parts, [&] { model_layouts(model(tied), DType::bf16, rules); });
  };
  refused({.freeze = {"model.embed_token.weight"}}, {"freeze", "embed_token.weight", "model.embed_tokens.weight"});
  refused({.train_only = {"*", "*.lora_a.*"}}, {"train_only", "*.lora_a.*"});
  refused({.freeze = {"model.layers.12.*"}}, {"model.layers.12.*", "near it", "model.layers.1"});
  refused({.freeze = {"lm_head.*"}}, {"tied", "model.embed_tokens.weight"}, true);
  refused({.freeze = {"*"}}, {"no tensor to train"});
  refused({.freeze = {"lm_head.*"}, .train_only = {"lm_head.*"}}, {"no tensor to train"});
  refused({.freeze = {"model.layers.[0-9"}}, {"model.layers.[0-9", "]"});
  refused({.freeze = {"model.layers.[].*"}}, {"[0-9]"});
  refused({.train_only = {"^layers.*"}}, {"train_only", "^layers.*", "it has tensors such as"});
  refused({.train_only = {"^(model.*"}}, {"train_only", "^(model.*", "no regular expression"});
}

TEST(FrozenLayout, GradientAndMomentsHoldTheTrainedTensorsAloneAndWeightsAllOfThem) {
  const LayerLayout whole = block({}), some = block({.freeze = {"*.k_proj.*", "*.gate_proj.*", "*input_layernorm*"}});
  EXPECT_EQ(whole.state_elements, whole.elements);
  EXPECT_EQ(some.elements, whole.elements);
  int64_t end = 0;
  for (size_t i = 0; i < some.tensors.size(); ++i) {
    const TensorSpec &tensor = some.tensors[i], &unfrozen = whole.tensors[i];
    EXPECT_EQ(tensor.offset, unfrozen.offset);
    EXPECT_EQ(unfrozen.state_offset, unfrozen.offset);
    if (!tensor.trainable) {
      EXPECT_EQ(tensor.state_offset, -1);
      continue;
    }
    EXPECT_EQ(tensor.state_offset, (end + kTensorAlign - 1) / kTensorAlign * kTensorAlign) << tensor.name;
    end = tensor.state_offset + tensor.elements();
  }
  EXPECT_EQ(some.state_elements, (end + kTensorAlign - 1) / kTensorAlign * kTensorAlign);
}

TEST(FrozenLayout, RunsAndGapsCoverTheTrainedElementsOnce) {
  for (const TrainRules& rules :
       {TrainRules{}, TrainRules{.freeze = {"*.k_proj.*"}}, TrainRules{.train_only = {"*.v_proj.*", "*norm.weight"}},
        TrainRules{.freeze = {"*.q_proj.weight", "*.up_proj.*"}}}) {
    const LayerLayout layout = block(rules);
    std::vector<int> state(static_cast<size_t>(layout.state_elements)), gap = state;
    std::map<int64_t, int64_t> weight_of;
    for (const TrainedRun& run : layout.trained_runs()) {
      for (int64_t i = 0; i < run.count; ++i) {
        ++state[static_cast<size_t>(run.state_offset + i)];
        weight_of[run.state_offset + i] = run.offset + i;
      }
    }
    for (const ElementRange& range : layout.state_gaps()) {
      for (int64_t i = 0; i < range.count; ++i) ++gap[static_cast<size_t>(range.begin + i)];
    }
    std::vector<int> in_tensor(state.size());
    for (const TensorSpec& tensor : layout.tensors) {
      for (int64_t i = 0; tensor.trainable && i < tensor.elements(); ++i) {
        ++in_tensor[static_cast<size_t>(tensor.state_offset + i)];
        EXPECT_EQ(weight_of.at(tensor.state_offset + i), tensor.offset + i);
      }
    }
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(in_tensor[i] + gap[i], 1);
      EXPECT_LE(in_tensor[i], state[i]);
      EXPECT_LE(state[i], 1);
    }
  }
  EXPECT_EQ(block({}).trained_runs().size(), 1u);
}

TEST(FrozenLayout, LowBitsAreOfTensorsWhoseMasterIsWiderThanTheirSource) {
  const TrainRules rules{.freeze = {"*.k_proj.*", "*.down_proj.*", "*.o_proj.*"}};
  const LayerLayout kept = block(rules);
  EXPECT_EQ(kept.low_elements, kept.elements);
  TensorTypes stored;
  for (const TensorSpec& tensor : kept.tensors) {
    EXPECT_EQ(tensor.low_offset, tensor.offset) << tensor.name;
    const bool single = tensor.name.find("o_proj") != std::string::npos;
    if (tensor.name.find("down_proj") == std::string::npos) stored[tensor.name] = single ? DType::f32 : DType::bf16;
  }
  const LayerLayout some = as_in_source({kept}, stored).front();
  EXPECT_EQ(some.elements, kept.elements);
  EXPECT_EQ(some.state_elements, kept.state_elements);
  std::vector<int> used(static_cast<size_t>(some.low_elements));
  for (size_t i = 0; i < some.tensors.size(); ++i) {
    const TensorSpec& tensor = some.tensors[i];
    EXPECT_EQ(tensor.offset, kept.tensors[i].offset);
    EXPECT_EQ(tensor.state_offset, kept.tensors[i].state_offset);
    EXPECT_EQ(tensor.master, DType::f32);
    EXPECT_EQ(tensor.has_low_bits(), tensor.name.find("k_proj") == std::string::npos) << tensor.name;
    if (!tensor.has_low_bits()) continue;
    for (int64_t e = 0; e < tensor.elements(); ++e) ++used[static_cast<size_t>(tensor.low_offset + e)];
  }
  EXPECT_EQ(*std::max_element(used.begin(), used.end()), 1);
  for (const TrainedRun& run : some.trained_runs()) {
    for (const TensorSpec& tensor : some.tensors) {
      if (!tensor.trainable || tensor.offset < run.offset || tensor.offset >= run.offset + run.count) continue;
      EXPECT_EQ(tensor.low_offset - run.low_offset, tensor.offset - run.offset) << tensor.name;
    }
  }
  EXPECT_EQ(with_format({some}, {.master = MasterFormat::stochastic}).front().low_elements, 0);
  EXPECT_EQ(weights_only({some}).front().low_elements, 0);
}

TEST(FrozenLayout, AFusedProductIsOneCallUnlessFreezingCutsIt) {
  const auto calls = [](const TrainRules& rules) {
    std::vector<std::array<int64_t, 4>> list;
    const Linear qkv(block(rules, true), BlockOperand::qkv, BlockOperand::qkv_bias);
    for (const LinearGradient& part : qkv.gradients())
      list.push_back({part.begin, part.rows, part.weight >= 0, part.bias >= 0});
    return list;
  };
  using Calls = std::vector<std::array<int64_t, 4>>;
  EXPECT_EQ(calls({}), (Calls{{0, 48, 1, 1}}));
  EXPECT_EQ(calls({.freeze = {"*.q_proj.*"}}), (Calls{{24, 24, 1, 1}}));
  EXPECT_EQ(calls({.freeze = {"*.k_proj.*"}}), (Calls{{0, 24, 1, 1}, {36, 12, 1, 1}}));
  EXPECT_EQ(calls({.freeze = {"*.self_attn.*.bias"}}), (Calls{{0, 48, 1, 0}}));
  EXPECT_EQ(calls({.freeze = {"*_proj.weight"}}), (Calls{{0, 48, 0, 1}}));
  EXPECT_EQ(calls({.freeze = {"*.v_proj.bias", "*.k_proj.weight"}}),
            (Calls{{0, 24, 1, 1}, {24, 12, 0, 1}, {36, 12, 1, 0}}));
  EXPECT_EQ(calls({.freeze = {"*.self_attn.*"}}), Calls{});
}

TEST(Freeze, TheNormSumsExpertsByThemselvesAndFrozenOnesAreEmpty) {
  const ModelConfig mixture = parse_model_config({{"architectures", {"MixtralForCausalLM"}},
                                                  {"vocab_size", 50},
                                                  {"hidden_size", 24},
                                                  {"intermediate_size", 36},
                                                  {"num_hidden_layers", 1},
                                                  {"num_attention_heads", 4},
                                                  {"num_key_value_heads", 2},
                                                  {"num_local_experts", 4},
                                                  {"num_experts_per_tok", 2}},
                                                 "config.json");
  const auto counts = [](const LayerLayout& layout) {
    std::vector<int64_t> all;
    int64_t end = 0;
    for (const ElementRange& part : layout.norm_parts()) {
      EXPECT_EQ(part.begin, end) << "parts follow each other";
      end = part.begin + part.count;
      all.push_back(part.count);
    }
    EXPECT_EQ(end, layout.state_elements);
    return all;
  };
  const std::vector<LayerLayout> layouts = model_layouts(mixture, DType::bf16);
  ASSERT_EQ(layouts.size(), 4u);
  EXPECT_EQ(counts(layouts[1]).size(), 1u) << "attention, norms and router";
  const int64_t each = layouts[2].state_elements / 4;
  EXPECT_EQ(counts(layouts[2]), std::vector<int64_t>(4, each));
  for (const LayerLayout& part :
       {model_layouts(mixture, DType::bf16, {}, 1)[3], model_layouts(mixture, DType::bf16, {}, 2)[2]})
    EXPECT_EQ(counts(part), std::vector<int64_t>(static_cast<size_t>(part.state_elements / each), each));
  EXPECT_EQ(counts(model_layouts(mixture, DType::bf16, {.freeze = {"*.experts.1.*", "*.experts.3.*"}})[2]),
            (std::vector<int64_t>{each, 0, each, 0}));
}

// What PEFT 0.21.2 was seen to read otherwise, or not at all.
TEST(Adapters, OfExpertsThatPeftWouldReadOtherwiseAreNamed) {
  const ModelConfig mixtral = parse_model_config({{"architectures", {"MixtralForCausalLM"}},
                                                  {"vocab_size", 50},
                                                  {"hidden_size", 24},
                                                  {"intermediate_size", 36},
                                                  {"num_hidden_layers", 2},
                                                  {"num_attention_heads", 4},
                                                  {"num_key_value_heads", 2},
                                                  {"num_local_experts", 4},
                                                  {"num_experts_per_tok", 2}},
                                                 "config.json");
  const auto unlike = [&](AdapterRules rules, bool joins_experts = true) {
    rules.rank = 2;
    return !unlike_peft(rules, model_layouts(mixtral, DType::f32, {.adapter = rules}), joins_experts).empty();
  };
  for (const AdapterRules& rules : {AdapterRules{.targets = {"w1", "w2", "w3"}},
                                    {.targets = {"w2"}},
                                    {.rslora = true, .targets = {"q_proj"}},
                                    {.targets = {"q_proj"}, .target_parameters = {"experts.gate_up_proj"}}})
    EXPECT_FALSE(unlike(rules)) << rules.targets.front();
  for (const AdapterRules& rules : {AdapterRules{.targets = {"w1", "w3"}},
                                    {.rslora = true, .targets = {"w1", "w2", "w3"}},
                                    {.targets = {"w1", "w2", "w3"}, .alpha_pattern = {{"w2", 3}}},
                                    {.targets = {"w1", "w2", "w3"}, .rank_pattern = {{"w2", 1}}},
                                    {.targets = {"w1"}}})
    EXPECT_TRUE(unlike(rules)) << rules.targets.front();
  EXPECT_TRUE(unlike({.targets = {"w1", "w2", "w3"}}, false)) << "not converted for every family";
}

// PEFT 0.21.2 with transformers 5.23 drops these adapters, or refuses all of the file if target_parameters are given.
TEST(Adapters, OfModulesNamedAsThoseOfExpertsAreNamed) {
  const auto unlike = [](const std::string& architecture, AdapterRules rules) {
    nlohmann::json json = {{"architectures", {architecture}}, {"vocab_size", 50},       {"hidden_size", 24},
                           {"intermediate_size", 36},         {"num_hidden_layers", 2}, {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},        {"num_experts", 4},       {"num_experts_per_tok", 2},
                           {"moe_intermediate_size", 20},     {"mlp_only_layers", {0}}};
    if (architecture == "Qwen2MoeForCausalLM") json["shared_expert_intermediate_size"] = 28;
    const ModelConfig config = parse_model_config(json, "config.json");
    rules.rank = 2;
    return unlike_peft(rules, model_layouts(config, DType::f32, {.adapter = rules}),
                       family_of(config).peft_joins_experts);
  };
  const std::vector<std::string> both = {"experts.gate_up_proj", "experts.down_proj"};
  for (const AdapterRules& rules : {AdapterRules{}, {.target_parameters = both}, {.targets = {"layers.0.mlp.up_proj"}}})
    EXPECT_NE(unlike("Qwen3MoeForCausalLM", rules).find("model.layers.0.mlp."), std::string::npos);
  for (const AdapterRules& rules : {AdapterRules{.exclude = {"gate_proj", "up_proj", "down_proj"}},
                                    {.targets = {"q_proj"}, .target_parameters = both}})
    EXPECT_EQ(unlike("Qwen3MoeForCausalLM", rules), "");
  EXPECT_EQ(unlike("Qwen2MoeForCausalLM", {}), "") << "PEFT takes its modules' names as they are";
}

}  // namespace megatrain
