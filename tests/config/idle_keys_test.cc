// Every accepted key has an effect: keys that would have none are refused by name.
#include "megatrain/config/idle_keys.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/said.h"

namespace megatrain {
namespace {

using Words = std::vector<std::string>;

std::string idle_refusal(const std::string& text, const Words& words = {}, const ConfigNeeds& needs = {}) {
  return refused_with(ExitCode::bad_config, [&] { parse_config(text, "c.yaml", words, needs); });
}

const std::string kTokens = "model.path: m\ndata.tokens: t\nsteps: 3\n";
const std::string kText = "model.path: m\ndata.train: t.jsonl\nsteps: 3\n";

struct IdleCase {
  const char* key;
  const char* value;
  std::string beside;    // the settings that make the key idle
  std::string obeyed;    // the settings with which it takes effect
  const char* off = "";  // a value that is accepted anyway
};

const IdleCase kCases[] = {
    {"data.shuffle", "true", kTokens, kText, "false"},
    {"data.packing", "false", kTokens, kText},
    {"data.train_on", "all", kTokens, kText},
    {"data.overlong", "drop", kTokens, kText},
    {"data.max_samples", "5", kTokens, kText, "0"},
    {"data.skip_bad", "5", kTokens, kText, "0"},
    {"data.info", "i", kTokens, kText, "null"},
    {"data.cache", "d", kTokens, kText, "null"},
    {"data.tokenizer", "d", kTokens, "model.config: c.json\ndata.tokens: t\nsteps: 3\n", "null"},
    {"data.dtype", "uint32", kText, kTokens},
    {"adapter.alpha", "4", kText + "adapter.rank: 0\n", kText + "adapter.rank: 8\n"},
    {"adapter.dropout", "0.5", kText + "adapter.rank: 0\n", kText},
    {"adapter.targets", "q_proj", kText + "adapter.rank: 0\n", kText},
    {"adapter.target_parameters", "experts.down_proj", kText + "adapter.rank: 0\n", kText},
    {"adapter.exclude", "q_proj", kText + "adapter.rank: 0\n", kText},
    {"adapter.rslora", "true", kText + "adapter.rank: 0\n", kText},
    {"adapter.dora", "true", kText + "adapter.rank: 0\n", kText},
    {"adapter.bias", "all", kText + "adapter.rank: 0\n", kText},
    {"adapter.init", "gaussian", kText + "adapter.rank: 0\n", kText},
    {"adapter.rank_pattern", "{q_proj: 2}", kText + "adapter.rank: 0\n", kText},
    {"adapter.alpha_pattern", "{q_proj: 2}", kText + "adapter.rank: 0\n", kText},
    {"adapter.also_train", "lm_head", kText + "adapter.rank: 0\n", kText},
    {"adapter.trainable_token_indices", "[7]", kText + "adapter.rank: 0\n", kText},
    {"memory.base", "files", kText + "adapter.rank: 0\n", kText + "adapter.rank: 8\n", "auto"},
    {"optim.min_lr", "1e-6", kTokens, kTokens + "optim.schedule: linear\n", "0"},
    {"optim.decay", "0.5", kTokens + "optim.schedule: cosine\n", kTokens + "optim.schedule: wsd\n"},
    {"optim.warmup_most", "5", kTokens + "optim.warmup: 2\n", kTokens + "optim.warmup: 0.5\n", "0"},
    {"eval.patience", "2", kText + "data.eval_split: 2\n", kText + "data.eval_split: 2\neval.every: 1\n", "0"},
    {"sample.prompts", "Who?", kTokens, kTokens + "sample.every: 1\n"},
    {"sample.max_tokens", "7", kTokens, kTokens + "sample: {every: 1, prompts: a}\n"},
    {"dump.steps", "1", kTokens + "dump: {grads: false, state: false}\n", kTokens + "dump.state: true\n", "none"},
    {"dump.steps", "1,2", kTokens + "dump: {grads: 3, state: false}\n", kTokens + "dump.grads: true\n", "none"},
    {"track.project", "p", kTokens + "track.to: tensorboard\n", kTokens + "track.to: [tensorboard, wandb]\n", "null"},
    {"track.name", "n", kTokens, kTokens + "track.to: mlflow\n", "null"},
    {"trace", "2-4", kTokens, "model.path: m\ndata.tokens: t\nsteps: 4\n", "none"},
    {"trace", "0", kTokens, "model.path: m\ndata.tokens: t\nsteps: 4\n", "1"},
};

}  // namespace

TEST(IdleKeys, AreRefusedByNameInAFileAndOnTheCommandLine) {
  for (const IdleCase& c : kCases) {
    const std::string line = std::string(c.key) + ": " + c.value + "\n", said = std::string(c.key) + " has no effect: ";
    EXPECT_NE(idle_refusal(c.beside + line).find(said), std::string::npos) << idle_refusal(c.beside + line);
    const std::string typed = idle_refusal(c.beside, {"--" + std::string(c.key) + "=" + c.value});
    EXPECT_EQ(typed.find("--" + std::string(c.key) + ": " + said), 0u) << typed;
    if (std::string(c.value) != "0") {
      EXPECT_EQ(idle_refusal(c.obeyed + line), "accepted") << c.key;
    }
    if (*c.off) {
      EXPECT_EQ(idle_refusal(c.beside + c.key + ": " + c.off + "\n"), "accepted") << c.key;
      EXPECT_EQ(idle_refusal(c.beside, {"--" + std::string(c.key) + "=" + c.off}), "accepted") << c.key;
    }
    EXPECT_EQ(idle_refusal(c.beside + line, {}, {.idle = true}), "accepted") << c.key;
  }
}

TEST(IdleKeys, EveryRuleHasACase) {
  std::set<std::string> cases, rules;
  for (const IdleCase& c : kCases) cases.insert(c.key);
  for (const IdleRule& rule : idle_rules()) {
    if (!rule.warns) rules.insert(rule.key);
  }
  EXPECT_EQ(cases, rules);
}

// config.resolved.yaml lists every key, and training with it must reproduce the run.
TEST(IdleKeys, DefaultsThatAFileWritesOutAreAccepted) {
  for (const std::string& text : {kTokens, kText, kTokens + "optim.schedule: wsd\n"}) {
    const TrainConfig config = parse_config(text, "c.yaml");
    EXPECT_EQ(idle_refusal(resolved_yaml(config)), "accepted");
    EXPECT_EQ(parse_config(resolved_yaml(config), "r.yaml"), config);
  }
  EXPECT_EQ(idle_refusal(kTokens + "optim.decay: 0.1\nsample.max_tokens: 128\ndata.packing: true\n"), "accepted");
}

TEST(IdleKeys, OfAnotherTrainersFileAreNotRefused) {
  const std::string theirs =
      "model_name_or_path: m\nfinetuning_type: full\ndataset: a\nmax_steps: 5\noutput_dir: o\nval_size: 0.1\n"
      "early_stopping_steps: 3\nlr_scheduler_type: linear\nwarmup_steps: 10\n";
  EXPECT_EQ(idle_refusal(theirs), "accepted");
  const TrainConfig config = parse_config(theirs + "eval_strategy: \"no\"\n", "c.yaml");
  EXPECT_EQ(config.eval.patience, 0);
  EXPECT_EQ(idle_refusal(resolved_yaml(config)), "accepted");
}

// The learning rate rises through the whole run. That is what was requested, but hardly what was intended.
TEST(IdleKeys, AWarmupLongerThanTheRunIsWarnedAbout) {
  const auto log = [&](const std::string& text) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(idle_refusal(text), "accepted");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(log(kTokens + "optim.warmup: 4\n").find("optim.warmup is too long: 4 steps of warmup in a run of 3"),
            std::string::npos);
  EXPECT_EQ(log(kTokens + "optim.warmup: 3\n").find("warmup"), std::string::npos);
}

TEST(IdleKeys, WhatTheCommandLineMakesIdleInAFileIsWarnedAbout) {
  const std::string text =
      kText + "data.packing: false\ndata.cache: c\ndata.shuffle: true\noptim: {schedule: cosine, min_lr: 1e-6}\n";
  const Words words = {"--data.train=null", "--data.tokens=t", "--optim.schedule=constant"};
  testing::internal::CaptureStderr();
  const TrainConfig config = parse_config(text, "c.yaml", words);
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* key : {"data.packing", "data.cache", "optim.min_lr"})
    EXPECT_NE(said.find(std::string(key) + " has no effect: "), std::string::npos) << key << said;
  EXPECT_EQ(parse_config(resolved_yaml(config), "r.yaml"), config);
}

TEST(IdleKeys, ARunThatOnlyExportsTakesTheKeysOfItsTraining) {
  EXPECT_EQ(idle_refusal(kTokens + "trace: 3\noptim.warmup: 3\n", {"--steps=0"}), "accepted");
}

TEST(IdleKeys, NullIsNoCoefficient) {
  EXPECT_NE(idle_refusal(kTokens + "moe.aux_loss: null\n").find("expected auto, model or a number"), std::string::npos);
  EXPECT_EQ(idle_refusal(kTokens + "moe.aux_loss: auto\n"), "accepted");
}

}  // namespace megatrain
