// LoRA in the files of other trainers, as keys of ours.
#include <gtest/gtest.h>

#include "megatrain/config/config.h"
#include "tests/support/axolotl_examples.h"
#include "tests/support/fixtures.h"
#include "tests/support/foreign_file.h"
#include "tests/support/llamafactory_examples.h"

namespace megatrain {
namespace {

using Adapter = TrainConfig::Adapter;
using Names = std::vector<std::string>;

Adapter ours(const std::string& keys) {
  return parse_config("model: {path: m}\ndata: {train: a.jsonl}\nsteps: 1\nadapter: " + keys + "\n", "ours.yaml")
      .adapter;
}

Adapter factory(const Keys& more) { return parse(lora(more)).adapter; }
Adapter of_axolotl(const Keys& more) { return parse(axolotl_lora(more)).adapter; }

// A PEFT directory of rank 4 on q_proj.
std::string write_adapter(const TemporaryDirectory& folder) {
  write_bytes(folder / "adapter_config.json",
              R"({"peft_type": "LORA", "r": 4, "lora_alpha": 12, "target_modules": ["q_proj"]})");
  return folder.path();
}

TEST(ForeignAdapter, IsTheOneThatOurKeysGive) {
  const Adapter same = ours(
      "{rank: 16, alpha: 24, dropout: 0.1, targets: [q_proj, v_proj], rslora: true, also_train: [embed_tokens, "
      "lm_head]}");
  EXPECT_EQ(factory({{"lora_rank", "16"},
                     {"lora_alpha", "24"},
                     {"lora_dropout", "0.1"},
                     {"lora_target", "q_proj,v_proj"},
                     {"use_rslora", "true"},
                     {"additional_target", "embed_tokens,lm_head"}}),
            same);
  EXPECT_EQ(of_axolotl({{"lora_r", "16"},
                        {"lora_alpha", "24"},
                        {"lora_dropout", "0.1"},
                        {"lora_target_linear", "-"},
                        {"lora_target_modules", "[q_proj, v_proj]"},
                        {"peft_use_rslora", "true"},
                        {"lora_modules_to_save", "[embed_tokens, lm_head]"}}),
            same);
}

TEST(ForeignAdapter, OfDoraIsTheOneThatOurKeyGives) {
  const Adapter dora = ours("{rank: 8, alpha: 16, dora: true}");
  EXPECT_EQ(factory({{"lora_rank", "8"}, {"lora_alpha", "16"}, {"use_dora", "true"}}), dora);
  EXPECT_EQ(of_axolotl({{"lora_r", "8"}, {"lora_alpha", "16"}, {"lora_dropout", "0"}, {"peft_use_dora", "true"}}),
            dora);
}

TEST(FactoryAdapter, HasTheirDefaults) {
  const Adapter standard = ours("{rank: 8, alpha: 16}");
  const Keys minimal = {{"model_name_or_path", "m"}, {"dataset", "d"}};
  EXPECT_EQ(parse(minimal).adapter, standard);
  EXPECT_EQ(parse(with(minimal, {{"finetuning_type", "lora"}})).adapter, standard);
  EXPECT_EQ(parse(with(minimal, {{"finetuning_type", "null"}})).adapter, standard);
  EXPECT_EQ(parse(with(minimal, {{"finetuning_type", "full"}})).adapter, Adapter{});
  EXPECT_EQ(factory({{"lora_rank", "32"}}).alpha, 64) << "twice the rank";
  EXPECT_EQ(factory({{"lora_rank", "32"}, {"lora_alpha", "null"}}).alpha, 64);
  EXPECT_EQ(parse(lora()).optim.lr, 1e-4) << "the rate stays theirs";
}

TEST(FactoryAdapter, TargetsAreAllOrNamesInEitherForm) {
  EXPECT_EQ(factory({{"lora_target", "all"}}).targets, Names{"all-linear"});
  EXPECT_EQ(factory({{"lora_target", "q_proj, v_proj"}}).targets, (Names{"q_proj", "v_proj"}));
  EXPECT_EQ(factory({{"lora_target", "[q_proj, v_proj]"}}).targets, (Names{"q_proj", "v_proj"}));
  EXPECT_EQ(factory({{"additional_target", "[lm_head]"}}).also_train, Names{"lm_head"});
  EXPECT_EQ(parse(lora(), {"--lora_target=q_proj,k_proj"}).adapter.targets, (Names{"q_proj", "k_proj"}));
}

TEST(FactoryAdapter, IsContinuedFromADirectoryWhoseSettingsStand) {
  const TemporaryDirectory folder;
  const TrainConfig config = parse(
      lora({{"adapter_name_or_path", write_adapter(folder)}, {"create_new_adapter", "false"}, {"lora_rank", "32"}}));
  EXPECT_EQ(config.model.adapter, folder.path());
  EXPECT_EQ(config.model.path, "models/m");
  EXPECT_EQ(config.adapter, ours("{rank: 4, alpha: 12, targets: [q_proj]}"));
  EXPECT_TRUE(has(config.translation, "model.adapter has its own")) << config.translation;
}

TEST(FactoryAdapter, ABaseOfFourBitsTrainsInBf16AndTheTableSaysSo) {
  const TrainConfig config = parse(lora({{"quantization_bit", "4"}, {"double_quantization", "true"}}));
  EXPECT_EQ(config.adapter, parse(lora()).adapter);
  EXPECT_EQ(config.precision, "bf16");
  for (const char* key : {"quantization_bit: 4", "double_quantization: true"})
    EXPECT_TRUE(has(config.translation, key));
  EXPECT_TRUE(has(config.translation, "the base is not quantised: it stays bf16, frozen and streamed"))
      << config.translation;
}

TEST(FactoryAdapter, TheTableHasEveryKeyGivenOrNot) {
  const std::string table = parse(lora({{"lora_target", "-"}})).translation;
  for (const char* row : {"lora_rank: 8", "lora_alpha: 16", "lora_dropout: 0", "lora_target: all", "use_rslora: false",
                          "finetuning_type: lora", "adapter.rank: 8", "adapter.alpha: 16", "adapter.targets: "})
    EXPECT_TRUE(has(table, row)) << row << "\n" << table;
}

TEST(FactoryAdapter, OtherFormsAreRefusedByNameAndAskForNothingWhileAllWeightsAreTrained) {
  for (const auto& [name, value] : Keys{{"pissa_init", "true"},
                                        {"loraplus_lr_ratio", "16"},
                                        {"loraplus_lr_embedding", "1e-6"},
                                        {"adapter_folder", "a"},
                                        {"lora_wings", "2"}}) {
    const std::string said = refusal(lora({{name, value}}));
    EXPECT_TRUE(has(said, ": " + name + ": " + value + " asks for ")) << said;
    EXPECT_EQ(refusal(lora({{name, "false"}})), "accepted");
    EXPECT_EQ(refusal(with(supervised(), {{name, value}})), "accepted") << name;
  }
  const Keys other = {{"adapter_name_or_path", "saves/a"}};
  EXPECT_TRUE(has(refusal(lora({{"adapter_name_or_path", "[a, b]"}})), "asks for several adapters"));
  EXPECT_TRUE(has(refusal(lora(with(other, {{"create_new_adapter", "true"}}))), "asks for a new adapter over another"));
  EXPECT_TRUE(has(refusal(with(supervised(), other)), "adapter_name_or_path: saves/a asks for adapters (LoRA) beside"));
  EXPECT_EQ(refusal(lora({{"create_new_adapter", "true"}})), "accepted") << "there is no other";
}

TEST(FactoryAdapter, OneKeyInAFileOfOursIsThatKeyAlone) {
  const auto with_key = [](const std::string& line) {
    return parse_config("model: {path: m}\ndata: {train: a.jsonl}\nsteps: 1\n" + line + "\n", "ours.yaml").adapter;
  };
  EXPECT_EQ(with_key("lora_rank: 16"), ours("{rank: 16}"));
  EXPECT_EQ(with_key("lora_alpha: 32"), ours("{alpha: 32}"));
  EXPECT_EQ(with_key("lora_target: q_proj"), ours("{targets: q_proj}"));
  EXPECT_EQ(with_key("finetuning_type: full"), Adapter{});
  EXPECT_TRUE(has(refused_with(ExitCode::bad_config, [&] { with_key("quantization_bit: 4"); }),
                  "quantization_bit: 4 asks for a quantised model"));
}

TEST(FactoryAdapter, GivesWayToTheRankOfTheCommandLine) {
  EXPECT_EQ(parse(lora(), {"--adapter.rank=4"}).adapter.rank, 4);
  EXPECT_EQ(parse(lora(), {"--adapter.rank=0"}).adapter, Adapter{});
  EXPECT_EQ(parse(lora(), {"--finetuning_type=full"}).adapter, Adapter{});
}

TEST(FactoryAdapter, OfTheV1FormIsItsSection) {
  const auto v1 = [](const std::string& section) {
    return Keys{{"model", "m"}, {"train_dataset", "d"}, {"max_steps", "5"}, {"peft_config", section}};
  };
  EXPECT_EQ(parse(v1("{name: lora, r: 16, lora_alpha: 32, lora_dropout: 0.05, target_modules: all}")).adapter,
            ours("{rank: 16, alpha: 32, dropout: 0.05}"));
  EXPECT_EQ(parse(v1("{name: lora, r: 4, lora_alpha: 8, lora_dropout: 0, target_modules: [q_proj, v_proj], use_rslora: "
                     "true, use_dora: false, modules_to_save: [lm_head]}"))
                .adapter,
            ours("{rank: 4, targets: [q_proj, v_proj], rslora: true, also_train: [lm_head]}"));
  EXPECT_TRUE(has(refusal(v1("{name: lora, r: 16}")), "peft_config has no lora_alpha; give r, lora_alpha"));
  EXPECT_EQ(
      parse(v1("{name: lora, r: 4, lora_alpha: 8, lora_dropout: 0, target_modules: all, use_dora: true}")).adapter,
      ours("{rank: 4, dora: true}"));
  EXPECT_TRUE(
      has(refusal(v1("{name: lora, r: 4, lora_alpha: 8, lora_dropout: 0, target_modules: all, use_qalora: true}")),
          "peft_config has use_qalora: true, which megatrain does not do"));
  const TemporaryDirectory folder;
  EXPECT_EQ(parse(v1("{name: lora, adapter_name_or_path: " + write_adapter(folder) + "}")).adapter.rank, 4);
}

TEST(AxolotlAdapter, HasPeftsDefaultsAndNoneForTheRank) {
  const Keys keys = with(axolotl_full(), {{"adapter", "lora"}, {"lora_target_linear", "true"}});
  EXPECT_EQ(parse(with(keys, {{"lora_r", "16"}})).adapter, ours("{rank: 16}"));
  EXPECT_TRUE(has(refusal(keys), "adapter is lora, and no lora_r gives its rank, for which Axolotl has no default"));
  EXPECT_EQ(parse(keys, {"--adapter.rank=4"}).adapter.rank, 4);
  EXPECT_TRUE(has(refusal(axolotl_lora({{"lora_target_linear", "false"}})), "no key names the modules"));
  EXPECT_EQ(parse(axolotl_lora()).optim.lr, 2e-4) << "the rate stays theirs";
}

TEST(AxolotlAdapter, TargetsAreLinearOnesNamesOrAnExpression) {
  const auto targets = [](const Keys& more) { return of_axolotl(more).targets; };
  const Keys named = {{"lora_target_linear", "-"}, {"lora_target_modules", "[q_proj, v_proj]"}};
  EXPECT_EQ(targets({}), Names{"all-linear"});
  EXPECT_EQ(targets({{"lora_target_modules", "[q_proj]"}}), Names{"all-linear"}) << "both";
  EXPECT_EQ(targets(named), (Names{"q_proj", "v_proj"}));
  EXPECT_EQ(targets(with(named, {{"lora_target_modules", "'.*layers\\.[0-3]\\.self_attn\\.(q|v)_proj'"}})),
            Names{".*layers\\.[0-3]\\.self_attn\\.(q|v)_proj"});
  EXPECT_TRUE(has(refusal(axolotl_lora({{"lora_target_modules", "[q_proj, lm_head]"}})),
                  "lora_target_modules has lm_head, which cannot have an adapter; lora_modules_to_save"));
}

TEST(AxolotlAdapter, LayersBecomePartOfAnExpression) {
  const Keys named = {{"lora_target_linear", "-"}, {"lora_target_modules", "[q_proj, mlp.up_proj]"}};
  const auto layers = [&](const std::string& list) { return with(named, {{"peft_layers_to_transform", list}}); };
  EXPECT_EQ(of_axolotl(layers("[0, 11]")).targets, Names{R"(.*\.(?:0|11)\.(?:.*\.)?(?:q_proj|mlp\.up_proj))"});
  EXPECT_EQ(of_axolotl(layers("[0]")).targets, Names{R"(.*\.(?:0)\.(?:.*\.)?(?:q_proj|mlp\.up_proj))"});
  EXPECT_TRUE(has(refusal(axolotl_lora({{"peft_layers_to_transform", "[0]"}})), "needs lora_target_modules as a list"));
  EXPECT_EQ(of_axolotl(layers("3")).targets, Names{R"(.*\.(?:3)\.(?:.*\.)?(?:q_proj|mlp\.up_proj))"});
  EXPECT_EQ(of_axolotl(layers("")).targets, (Names{"q_proj", "mlp.up_proj"}));
  EXPECT_TRUE(has(refusal(axolotl_lora(layers("[first]"))), "peft_layers_to_transform is 'first', expected a whole"));
  EXPECT_TRUE(has(refusal(axolotl_lora(with(layers("[1]"), {{"lora_target_modules", ".*q_proj"}}))),
                  "needs lora_target_modules as a list of names, and one is '.*q_proj'"));
  EXPECT_TRUE(has(refusal(axolotl_lora({{"peft_layers_to_transform", "[1]"}})),
                  "peft_layers_to_transform needs lora_target_modules as a list of names; lora_target_linear"));
}

TEST(AxolotlAdapter, AQuantisedBaseTrainsInBf16AndTheTableSaysSo) {
  const TrainConfig plain = parse(axolotl_lora());
  for (const Keys& more : {Keys{{"load_in_8bit", "true"}}, Keys{{"adapter", "qlora"}, {"load_in_4bit", "true"}}}) {
    const TrainConfig config = parse(axolotl_lora(more));
    EXPECT_EQ(config.adapter, plain.adapter);
    EXPECT_EQ(config.precision, "bf16");
    EXPECT_TRUE(has(config.translation, "the base is not quantised: it stays bf16, frozen and streamed"))
        << config.translation;
  }
}

TEST(AxolotlAdapter, IsContinuedFromADirectoryWhoseSettingsStand) {
  const TemporaryDirectory folder;
  const TrainConfig config = parse(axolotl_lora({{"lora_model_dir", write_adapter(folder)}, {"lora_r", "-"}}));
  EXPECT_EQ(config.model.adapter, folder.path());
  EXPECT_EQ(config.adapter, ours("{rank: 4, alpha: 12, targets: [q_proj]}"));
  EXPECT_TRUE(has(config.translation, "model.adapter has its own")) << config.translation;
}

TEST(AxolotlAdapter, KernelsAndLoadingHaveNoEffect) {
  TrainConfig config = parse(axolotl_lora({{"lora_mlp_kernel", "true"},
                                           {"lora_qkv_kernel", "true"},
                                           {"lora_o_kernel", "true"},
                                           {"qlora_sharded_model_loading", "true"},
                                           {"lora_on_cpu", "true"},
                                           {"lora_fan_in_fan_out", "true"},
                                           {"peft_use_dora", "false"},
                                           {"peft_init_lora_weights", "true"}}));
  const TrainConfig plain = parse(axolotl_lora());
  EXPECT_TRUE(has(config.translation, "lora_mlp_kernel: true"));
  config.translation = plain.translation;
  config.names = plain.names;
  EXPECT_EQ(config, plain);
  EXPECT_EQ(of_axolotl({{"peft_init_lora_weights", "gaussian"}}).init, "gaussian");
}

TEST(AxolotlAdapter, ParametersOfExpertsHaveAdaptersWithOrWithoutModules) {
  const Keys experts = {{"lora_target_parameters", "[mlp.experts.gate_up_proj, mlp.experts.down_proj]"}};
  const std::vector<std::string> both = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  EXPECT_EQ(parse(axolotl_lora(experts)).adapter.target_parameters, both);
  EXPECT_EQ(parse(axolotl_lora(experts)).adapter.targets, std::vector<std::string>{"all-linear"});
  Keys alone = experts;
  alone.emplace_back("lora_target_linear", "false");
  EXPECT_EQ(parse(axolotl_lora(alone)).adapter.target_parameters, both);
  EXPECT_TRUE(parse(axolotl_lora(alone)).adapter.targets.empty());
}

TEST(AxolotlAdapter, RowsOfTokensAreAListOrAMappingOfModules) {
  using Tokens = decltype(Adapter::trainable_token_indices);
  const auto tokens = [](const std::string& value) {
    return parse(axolotl_lora({{"peft_trainable_token_indices", value}})).adapter.trainable_token_indices;
  };
  EXPECT_EQ(tokens("[7, 3]"), (Tokens{{"embed_tokens", {7, 3}}}));
  EXPECT_EQ(tokens("{embed_tokens: [7, 3], lm_head: [9]}"), (Tokens{{"embed_tokens", {7, 3}}, {"lm_head", {9}}}));
  EXPECT_EQ(tokens("null"), Tokens{});
  EXPECT_TRUE(has(refusal(axolotl_lora({{"peft_trainable_token_indices", "[seven]"}})), "ids of tokens"));
}

TEST(AxolotlAdapter, WhatWouldBeIgnoredIsRefusedByName) {
  for (const auto& [name, value] : Keys{{"peft_init_lora_weights", "pissa"},
                                        {"peft_init_lora_weights", "false"},
                                        {"lora_alpha", "much"},
                                        {"adapter", "boft"}})
    EXPECT_TRUE(has(refusal(axolotl_lora({{name, value}})), ": " + name + " is "))
        << refusal(axolotl_lora({{name, value}}));
  for (const auto& [name, value] : Keys{{"loraplus_lr_embedding", "1e-6"}, {"relora", "true"}})
    EXPECT_TRUE(has(refusal(axolotl_lora({{name, value}})), ": " + name + ": "))
        << refusal(axolotl_lora({{name, value}}));
  const Keys off = {{"adapter", ""}, {"lora_r", "16"}, {"peft_use_dora", "true"}, {"loraplus_lr_ratio", "16"}};
  EXPECT_EQ(parse(axolotl_lora(off)).adapter, Adapter{}) << "all weights are trained";
}

}  // namespace
}  // namespace megatrain
