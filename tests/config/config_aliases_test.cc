#include <fmt/format.h>
#include <gtest/gtest.h>

#include "megatrain/config/config.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

TrainConfig parse_aliases(const std::string& text, const std::vector<std::string>& words = {}) {
  return parse_config(text, "c.yaml", words);
}

std::string alias_refusal(const std::string& text, const std::vector<std::string>& words = {}) {
  return refused_with(ExitCode::bad_config, [&] { parse_aliases(text, words); });
}

// A full fine-tuning configuration as LLaMA-Factory's examples write it.
constexpr const char* kLlamaFactory = R"(
### model
model_name_or_path: models/qwen
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_offload_config.json
### dataset
dataset: identity,alpaca_en_demo
dataset_dir: data
template: qwen
cutoff_len: 2048
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16
### output
output_dir: saves/qwen
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
### train
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
learning_rate: 2.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
### eval
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 200
)";

TEST(ConfigAliases, ALlamaFactoryConfigurationIsUnderstood) {
  const TrainConfig config = parse_aliases(kLlamaFactory);
  EXPECT_EQ(config.model.path, "models/qwen");
  ASSERT_EQ(config.data.train.size(), 2u);
  EXPECT_EQ(config.data.train[0].path, "identity");
  EXPECT_EQ(config.data.train[1].path, "alpaca_en_demo");
  EXPECT_EQ(config.data.info, "data");
  EXPECT_EQ(config.seq_len, 2048);
  EXPECT_EQ(config.data.max_samples, 1000);
  EXPECT_EQ(config.run_dir, "saves/qwen");
  EXPECT_EQ(config.checkpoint.every, 500);
  EXPECT_EQ(config.micro_batch, 2);
  EXPECT_EQ(config.batch, 16);
  EXPECT_EQ(config.optim.lr, 2e-5);
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.optim.schedule, "cosine");
  EXPECT_EQ(config.optim.warmup, 0.1);
  EXPECT_EQ(config.data.eval_split, 0.1);
  EXPECT_EQ(config.eval.every, 200);
}

constexpr const char* kBase = "model: {path: m}\ndata: {train: a.jsonl}\n";

TEST(ConfigAliases, WhatMegatrainDoesNotDoIsRefused) {
  EXPECT_NE(alias_refusal("finetuning_type: oft\n").find("c.yaml:1: finetuning_type: oft asks for adapters (OFT)"),
            std::string::npos);
  EXPECT_NE(
      alias_refusal("finetuning_type: half\n").find("c.yaml:1: finetuning_type is 'half', expected lora or full;"),
      std::string::npos);
  EXPECT_NE(alias_refusal("stage: grpo\n").find("expected sft or pt"), std::string::npos);
  EXPECT_NE(alias_refusal("optim: adafactor\n").find("the optimizer is AdamW"), std::string::npos);
  EXPECT_EQ(alias_refusal(std::string(kBase) + "optim: adamw_torch\nsteps: 1\n"), "accepted");
  EXPECT_NE(alias_refusal("lr_scheduler_type: polynomial\n").find("expected constant"), std::string::npos);
}

TEST(ConfigAliases, AValueThatIsRefusedIsNamedInTheirWordsAndOurs) {
  EXPECT_EQ(alias_refusal(std::string(kBase) + "steps: 1\nlearning_rate: 5000\n"),
            "c.yaml:4: learning_rate (optim.lr) is '5000', expected a number from 0 to 1000");
}

TEST(ConfigAliases, TwoNamesOfOneThingInOnePlaceAreRefusedAndTheCommandLineWins) {
  const std::string base = std::string(kBase) + "steps: 5\n";
  EXPECT_EQ(alias_refusal(base + "learning_rate: 1\noptim: {lr: 2}\n"),
            "c.yaml:4: learning_rate means optim.lr, which is given too (c.yaml:5); keep one");
  EXPECT_EQ(parse_aliases(base + "learning_rate: 1\n", {"--optim.lr=2"}).optim.lr, 2);
  EXPECT_EQ(parse_aliases(base + "optim: {lr: 2}\n", {"--learning_rate=1"}).optim.lr, 1);
  EXPECT_EQ(parse_aliases(base, {"--skip-bad", "7"}).data.skip_bad, 7);
}

TEST(ConfigAliases, TheirOptimizerOnTheCommandLineMeansWhatItMeansInAFile) {
  const std::string ours = std::string(kBase) + "steps: 5\n", theirs = ours + "optim: adamw_bnb_8bit\n";
  EXPECT_EQ(parse_aliases(ours, {"--optim=adamw_torch", "--optim.lr=2"}).optim.lr, 2);
  EXPECT_EQ(parse_aliases(ours, {"--optim", "adamw_bnb_8bit"}).state.moments, "int8");
  EXPECT_EQ(parse_aliases(theirs).state.moments, "int8");
  EXPECT_EQ(parse_aliases(theirs, {"--optim=adamw_torch"}).state.moments, "fp32");
  EXPECT_TRUE(is_config_override("--optim=adamw_torch"));
  EXPECT_EQ(alias_refusal(ours, {"--optim=lion"}).rfind("--optim: optim is 'lion', expected adamw_torch", 0), 0u);
  EXPECT_EQ(alias_refusal(ours, {"--optim=adamw_bnb_8bit", "--state.moments=bf16"}),
            "--optim: optim means state.moments, which is given too (--state.moments); keep one");
  EXPECT_EQ(alias_refusal(ours, {"--data=a"}),
            "--data: 'data' is a section of keys, expected keys such as 'data.tokens' in it");
}

TEST(ConfigAliases, MaxStepsDecidesOverEpochsAndMinusOneDoesNot) {
  EXPECT_EQ(parse_aliases(std::string(kBase) + "num_train_epochs: 3\nmax_steps: 7\n").steps, 7);
  EXPECT_EQ(parse_aliases(std::string(kBase) + "num_train_epochs: 3\nmax_steps: -1\n").epochs, 3);
}

TEST(ConfigAliases, PackingAndNeatPackingTogetherAreOnWhenOneIs) {
  const auto packing = [](const char* packing, const char* neat) {
    return parse_aliases(fmt::format("{}steps: 1\npacking: {}\nneat_packing: {}\n", kBase, packing, neat)).data.packing;
  };
  EXPECT_TRUE(packing("true", "true"));
  EXPECT_TRUE(packing("false", "true"));
  EXPECT_TRUE(packing("true", "false"));
  EXPECT_FALSE(packing("false", "false"));
}

TEST(ConfigLength, IsOneOfStepsEpochsAndTokens) {
  EXPECT_EQ(alias_refusal(kBase), "c.yaml: how long is the run? Give steps, epochs or tokens");
  EXPECT_EQ(alias_refusal(std::string(kBase) + "steps: 1\nepochs: 2\n"),
            "c.yaml:4: both steps and epochs are given; keep the one that says how long the run is");
  EXPECT_EQ(alias_refusal(std::string(kBase) + "epochs: 2\n", {"--steps=2"}),
            "--steps: c.yaml:3 gives epochs too; add --epochs=null to use only steps");
  EXPECT_EQ(parse_aliases(std::string(kBase) + "epochs: 0.5\n").epochs, 0.5);
  EXPECT_EQ(parse_aliases(std::string(kBase) + "tokens: 1000000\n").tokens, 1'000'000);
  EXPECT_NE(alias_refusal(std::string(kBase) + "epochs: 0\n").find("expected a number above 0"), std::string::npos);
}

TEST(ConfigDatasets, AreAPathPathsOrAListWithOptions) {
  const auto train = [](const std::string& text) {
    return parse_aliases("model: {path: m}\nsteps: 1\ndata:\n  train: " + text + "\n").data.train;
  };
  ASSERT_EQ(train("a.jsonl").size(), 1u);
  EXPECT_EQ(train("a.jsonl")[0].path, "a.jsonl");
  EXPECT_EQ(train("a.jsonl, b c.jsonl")[1].path, "b c.jsonl");
  EXPECT_EQ(train("[a.jsonl, \"b,c.jsonl\"]")[1].path, "b,c.jsonl");
  const auto mixed =
      train("[{path: a, format: sharegpt, weight: 0.5, columns: {messages: talk}, tags: {user: me}}, b]");
  ASSERT_EQ(mixed.size(), 2u);
  EXPECT_EQ(mixed[0].format, "sharegpt");
  EXPECT_EQ(mixed[0].weight, 0.5);
  EXPECT_EQ(mixed[0].options.at("columns.messages"), "talk");
  EXPECT_EQ(mixed[0].options.at("tags.user"), "me");
  EXPECT_EQ(mixed[1].path, "b");
  EXPECT_EQ(train("{path: a, weight: 2}")[0].weight, 2);
}

TEST(ConfigDatasets, AWrongOptionIsRefused) {
  const auto with = [](const std::string& text) {
    return alias_refusal("model: {path: m}\nsteps: 1\ndata:\n  train: " + text + "\n");
  };
  for (const char* text : {"[{path: a, format: parquet}]", "[{path: a, weight: 0}]", "[{weight: 1}]",
                           "[{path: a, colums: {text: b}}]", "[]", "[[a]]"})
    EXPECT_EQ(with(text).find("c.yaml:4: data.train"), 0u) << text << ": " << with(text);
  EXPECT_EQ(alias_refusal(std::string(kBase) + "steps: 1\neval: {every: 5}\n"),
            "c.yaml:4: eval.every needs data to evaluate on: give data.eval or data.eval_split");
  EXPECT_EQ(alias_refusal("model: {path: m}\nsteps: 1\ndata: {train: a, tokens: b}\n"),
            "c.yaml:3: both data.train and data.tokens are given; keep one");
}

TEST(ConfigDatasets, TheResolvedConfigurationReadsBackToTheSame) {
  const TrainConfig config = parse_aliases(
      "model: {path: m}\nepochs: 1.5\ndata:\n  train: [{path: \"a, \\\"b\", weight: 0.25, columns: {text: t}}, c]\n"
      "  eval_split: 3\nsample: {every: 2, prompts: [\"one, two\", three]}\n");
  EXPECT_EQ(config.sample.prompts, (std::vector<std::string>{"one, two", "three"}));
  EXPECT_EQ(parse_aliases(resolved_yaml(config)), config);
}

}  // namespace
}  // namespace megatrain
