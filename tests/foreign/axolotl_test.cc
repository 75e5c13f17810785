#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/config/config.h"
#include "megatrain/train/optim_settings.h"
#include "tests/support/axolotl_examples.h"
#include "tests/support/chat_fixture.h"
#include "tests/support/foreign_file.h"

namespace megatrain {
namespace {

// Datasets whose samples all have the same length, and a tiny model that reads them.
class Axolotl : public ChatFixture {
 protected:
  static constexpr int64_t kSamples = 2000;

  void SetUp() override {
    ChatFixture::SetUp();
    std::string alpaca, chat, text;
    for (int64_t i = 0; i < kSamples; ++i) {
      alpaca +=
          nlohmann::json{{"instruction", fmt::format("task {:04}", i)}, {"input", ""}, {"output", axolotl_answer()}}
              .dump();
      const nlohmann::json turns = {{{"from", "human"}, {"value", fmt::format("question {:04}", i)}},
                                    {{"from", "gpt"}, {"value", axolotl_answer()}}};
      chat += nlohmann::json{{"conversations", turns}}.dump();
      text += nlohmann::json{{"text", fmt::format("document {:04}", i)}}.dump();
      for (std::string* each : {&alpaca, &chat, &text}) *each += '\n';
    }
    write("alpaca.jsonl", alpaca);
    write("chat.jsonl", chat);
    write("text.jsonl", text);
  }

  RunData open(TrainConfig config) {
    config.model.path = "";
    config.model.config = at("model/config.json");
    config.data.tokenizer = at("model");
    config.data.chat_template = "";  // the tokenizer lacks the tokens of the named ones
    config.data.cache = at("cache");
    for (DatasetChoice& choice : config.data.train) choice.path = at(choice.path);
    return open_data(config, model_source());
  }
};

TEST_F(Axolotl, TwentyOfTheirExamplesHaveTheirSamplesStepsRatesAndWarmup) {
  int64_t compared = 0;
  for (const AxolotlExample& example : axolotl_trained()) {
    SCOPED_TRACE(example.name);
    TrainConfig config = parse(example.keys);
    const AxolotlRules theirs(example.keys);
    const TheirRules& given = theirs.given;

    EXPECT_EQ(config.model.path, "models/m");
    EXPECT_EQ(config.batch, theirs.samples_a_step());
    EXPECT_EQ(config.micro_batch, given.whole("micro_batch_size", 1));
    EXPECT_EQ(config.seq_len, given.whole("sequence_len", 512));
    EXPECT_EQ(config.data.packing, theirs.packs());
    EXPECT_EQ(config.data.eval_split, given.number("val_set_size", 0));
    EXPECT_EQ(config.data.train_on, "assistant");
    EXPECT_EQ(config.data.overlong, "drop");
    EXPECT_TRUE(config.data.shuffle);
    EXPECT_EQ(config.seed, 42u);
    EXPECT_EQ(config.optim.lr, given.number("learning_rate", 0));
    EXPECT_EQ(config.optim.schedule, given.text("lr_scheduler", "cosine") == "cosine" ? "cosine" : "constant");
    EXPECT_EQ(config.optim.weight_decay, given.number("weight_decay", 0));
    EXPECT_EQ(config.optim.beta2, given.number("adam_beta2", 0.999));
    EXPECT_EQ(config.optim.eps, given.number("adam_epsilon", 1e-8));
    EXPECT_EQ(config.optim.clip, given.number("max_grad_norm", 1.0));
    EXPECT_EQ(config.precision, "bf16");
    EXPECT_EQ(config.state.moments, has(given.text("optimizer", ""), "8bit") ? "int8" : "fp32");
    EXPECT_EQ(config.train_only.empty(), given.text("unfrozen_parameters", "").empty());
    EXPECT_EQ(config.checkpoint.keep, given.whole("save_total_limit", 4));
    EXPECT_FALSE(config.resume);

    TrainConfig again = parse_config(resolved_yaml(config), "resolved");
    EXPECT_EQ(again.translation, "") << "nothing is left to translate";
    again.translation = config.translation;
    again.names = config.names;
    EXPECT_EQ(again, config);

    RunData data = open(config);
    const int64_t all = has(given.text("datasets", ""), "20%") ? kSamples / 5 : kSamples;
    const int64_t samples = all - theirs.held(all);
    ASSERT_EQ(data.train_samples->counts().samples, samples);
    EXPECT_EQ(data.eval_samples ? data.eval_samples->counts().samples : 0, theirs.held(all));
    const int64_t rows = data.train_samples->counts().sequences;
    EXPECT_TRUE(config.data.packing || rows == samples);
    const int64_t steps = theirs.steps(rows);
    config.steps = steps_of_run(config, *data.train);
    EXPECT_EQ(config.steps, steps);
    const LearningRate schedule = learning_rate_of(config);
    EXPECT_EQ(warmup_steps(schedule), theirs.warmup(steps));
    for (int64_t done = 0; done < steps; ++done)
      ASSERT_DOUBLE_EQ(learning_rate(schedule, done + 1), theirs.rate(done, steps)) << "after " << done << " steps";
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

TEST(AxolotlDefaults, AMinimalFileHasTheirsNotOurs) {
  const TrainConfig config = parse({{"base_model", "m"}, {"datasets", kAlpacaSet}, {"learning_rate", "1e-4"}});
  EXPECT_FALSE(config.data.packing);
  EXPECT_EQ(config.seq_len, 512);
  EXPECT_EQ(config.optim.schedule, "cosine");
  EXPECT_EQ(config.optim.weight_decay, 0);
  EXPECT_EQ(config.optim.warmup, 0.03);
  EXPECT_EQ(config.optim.warmup_most, 100);
  EXPECT_EQ(config.batch, 1);
  EXPECT_EQ(config.epochs, 1);
  EXPECT_EQ(config.data.overlong, "drop");
  EXPECT_EQ(config.seed, 42u);
  EXPECT_EQ(config.precision, "bf16");
  EXPECT_EQ(config.checkpoint.every_part, 1);  // one epoch
  EXPECT_EQ(config.checkpoint.keep, 4);
  EXPECT_EQ(config.conventions, "axolotl");
  EXPECT_EQ(config.run_dir, "./model-out");
  EXPECT_TRUE(has(refusal({{"base_model", "m"}, {"datasets", kAlpacaSet}}), "no learning_rate"));
  EXPECT_TRUE(has(refusal({{"base_model", "m"}, {"learning_rate", "1"}}), "no data; give datasets"));
}

TEST(AxolotlRates, WarmupIsRoundedDownOneStepIsTwoAndTheDefaultIsAtMostAHundred) {
  const auto warmup = [](const Keys& more, int64_t steps) {
    TrainConfig config = parse(with(axolotl_full(), more));
    config.steps = steps;
    return warmup_steps(learning_rate_of(config));
  };
  EXPECT_EQ(warmup({{"warmup_ratio", "0.1"}}, 199), 19);
  EXPECT_EQ(warmup({{"warmup_ratio", "0.1"}}, 19), 2);  // one step becomes two
  EXPECT_EQ(warmup({{"warmup_ratio", "0.1"}}, 9), 0);
  EXPECT_EQ(warmup({{"warmup_ratio", "-"}}, 1000), 30);
  EXPECT_EQ(warmup({{"warmup_ratio", "-"}}, 10000), 100);
  EXPECT_EQ(warmup({{"warmup_ratio", "0.03"}}, 10000), 300);
  EXPECT_EQ(warmup({{"warmup_ratio", "-"}, {"warmup_steps", "1"}}, 100), 2);
  EXPECT_EQ(warmup({{"warmup_ratio", "-"}, {"warmup_steps", "7"}}, 100), 7);
  EXPECT_TRUE(has(refusal(with(axolotl_full(), {{"warmup_steps", "7"}})), "both given"));
  EXPECT_EQ(warmup({{"warmup_ratio", "-"}, {"warmup_steps", "0.1"}}, 199), 19);  // as transformers reads it
  EXPECT_TRUE(has(refusal(with(axolotl_full(), {{"warmup_ratio", "-"}, {"warmup_steps", "1.5"}})),
                  "warmup_steps is '1.5', expected a whole number"));
}

TEST(AxolotlSteps, SavesAndEvaluationsForEachEpochArePartsOfTheRun) {
  const auto every = [](const Keys& more) { return parse(with(axolotl_full(), more)); };
  EXPECT_EQ(every({{"saves_per_epoch", "1"}, {"num_epochs", "1"}}).checkpoint.every_part, 1);
  EXPECT_DOUBLE_EQ(every({{"saves_per_epoch", "2"}, {"num_epochs", "3"}}).checkpoint.every_part, 1.0 / 6);
  EXPECT_DOUBLE_EQ(every({{"evals_per_epoch", "4"}}).eval.every_part, 0.25);
  EXPECT_EQ(every({{"evals_per_epoch", "4"}, {"val_set_size", "0"}}).eval.every_part, 0);
  EXPECT_EQ(every({{"saves_per_epoch", "-"}, {"save_steps", "50"}}).checkpoint.every, 50);
  EXPECT_EQ(every({{"saves_per_epoch", "-"}, {"save_strategy", "\"no\""}}).checkpoint.every_part, 0);
  EXPECT_EQ(steps_between(0, 1.0 / 6, 100, 34), 17);  // rounded up
  EXPECT_EQ(steps_between(0, 1, 100, 34), 34);
  EXPECT_EQ(steps_between(7, 0, 100, 34), 7);
}

TEST(AxolotlMethods, ThatAreNotThereAreNamedBeforeUnknownKeysAre) {
  for (const AxolotlRefused& each : axolotl_refused()) expect_method_named(each);
}

TEST(AxolotlMethods, AllThatAFileAsksForAreNamedWithTheirLines) {
  const std::string said = refusal({{"base_model", "m"},
                                    {"load_in_4bit", "true"},
                                    {"adapter", "llama-adapter"},
                                    {"use_eaft", "true"},
                                    {"datasets", kAlpacaSet}});
  EXPECT_TRUE(said.starts_with("theirs.yaml:4: adapter: llama-adapter asks for adapters (LLaMA-Adapter)")) << said;
  EXPECT_TRUE(has(said, "theirs.yaml:3: load_in_4bit: true asks for a quantised model")) << said;
  EXPECT_TRUE(has(said, "theirs.yaml:5: use_eaft: true asks for the EAFT loss")) << said;
}

TEST(AxolotlKeys, EverythingThatIsWrongIsSaidAtOnceWithItsLine) {
  const std::string said = refusal(with(axolotl_full(), {{"warp_speed", "9"},
                                                         {"learnin_rate", "1"},
                                                         {"world_size", "4"},
                                                         {"optimizer", "lion_8bit"},
                                                         {"colour", "blue"}}));
  EXPECT_TRUE(said.starts_with("3 problems: (1) theirs.yaml:")) << said;
  EXPECT_TRUE(has(said, "3 unknown keys: 'warp_speed' (line ")) << said;
  EXPECT_TRUE(has(said, "'learnin_rate' (line ")) << said;
  EXPECT_TRUE(has(said, "did you mean 'learning_rate'?")) << said;
  EXPECT_TRUE(has(said, "'colour' (line ")) << said;
  EXPECT_TRUE(has(said, "world_size is '4', expected 1 or null: that trainer uses several GPUs")) << said;
  EXPECT_TRUE(has(said, "optimizer is 'lion_8bit', expected adamw_torch")) << said;
}

TEST(AxolotlData, TypesBecomeFormatsAndOthersAreRefusedByName) {
  const auto train = [](const std::string& sets) {
    return parse(with(axolotl_full(), {{"datasets", sets}})).data.train;
  };
  const auto refused = [](const std::string& sets) { return refusal(with(axolotl_full(), {{"datasets", sets}})); };
  EXPECT_EQ(train("[{path: a.jsonl, type: alpaca}]")[0].format, "alpaca_prompt");
  EXPECT_EQ(train("[{path: a.jsonl, type: completion, field: body}]")[0].options.at("columns.text"), "body");
  EXPECT_EQ(train("[{path: a.jsonl, type: sharegpt}]")[0].format, "sharegpt");
  EXPECT_EQ(train("[{path: a.jsonl, type: chat_template}]")[0].format, "messages");
  EXPECT_EQ(train("[{path: json, data_files: [a.jsonl, b.jsonl], type: chat_template}]")[1].path, "b.jsonl");
  const DatasetChoice named = train(
      "[{path: a, type: chat_template, field_messages: talk, message_property_mappings: {role: who, content: what}, "
      "roles: {user: [me], assistant: [you]}, roles_to_train: [assistant], train_on_eos: turn, split: 'train[:7]'}]")
      [0];
  EXPECT_EQ(named.options.at("columns.messages"), "talk");
  EXPECT_EQ(named.options.at("columns.role"), "who");
  EXPECT_EQ(named.options.at("columns.content"), "what");
  EXPECT_EQ(named.options.at("tags.user"), "me");
  EXPECT_EQ(named.most, 7);
  EXPECT_EQ(train("[{path: a, type: chat_template, roles: {user: [human, user], assistant: [gpt]}}]")[0].format,
            "sharegpt");
  for (const auto& [sets, part] :
       Keys{{"[{path: a, type: input_output}]", "type is 'input_output', expected alpaca, chat_template"},
            {"[{path: a, type: {field_instruction: q, format: x}}]", "type is a custom prompt"},
            {"[{path: a}]", "a dataset has no type"},
            {"[{path: a, type: alpaca, split: 'train[5%:10%]'}]", "split is 'train[5%:10%]'"},
            {"[{path: a, type: chat_template, roles_to_train: [user]}]", "roles_to_train is user"},
            {"[{path: a, type: chat_template, train_on_eos: all}]", "train_on_eos is 'all', expected turn"},
            {"[{path: a, type: chat_template, message_field_training: train}]", "is not supported"},
            {"[{path: a, type: alpaca, wings: 2}]", "a dataset has 'wings', which is not known here"},
            {"[{type: alpaca}]", "a dataset has no path"}})
    EXPECT_TRUE(has(refused(sets), part)) << sets << ": " << refused(sets);
}

TEST(AxolotlData, OptionsThatAreNotObeyedAreRefusedOrWarnedOfByName) {
  const auto keys = [](const std::string& sets) { return with(axolotl_full(), {{"datasets", sets}}); };
  for (const auto& [sets, part] :
       Keys{{"[{path: a.jsonl, type: alpaca, ds_type: parquet}]", "ds_type is 'parquet', and a.jsonl is JSON"},
            {"[{path: a.jsonl, type: alpaca, skip: 5}]", "skip is '5', which is not supported; take the first"},
            {"[{path: a, type: chat_template, roles_to_train: []}]", "roles_to_train is empty"}})
    EXPECT_TRUE(has(refusal(keys(sets)), part)) << sets << ": " << refusal(keys(sets));
  EXPECT_EQ(refusal(keys("[{path: a.jsonl, type: alpaca, ds_type: json, skip: 0, split: train}]")), "accepted");
  for (const auto& [sets, part] :
       Keys{{"[{path: a, type: alpaca, split: test}]",
             "split: test is not looked for: of a is used what is for training"},
            {"[{path: a, type: alpaca, train_on_split: test}]", "split: test is not looked for"},
            {"[{path: a, type: sharegpt, conversation: vicuna}]", "conversation: vicuna is not supported"}})
    EXPECT_TRUE(has(logged(keys(sets)), part)) << sets;
  EXPECT_FALSE(has(logged(keys("[{path: a, type: alpaca, split: 'train[:5]'}]")), "not looked for"));
}

TEST(AxolotlSteps, PairsThatTheirOwnCheckRefusesAreRefused) {
  const Keys plain = with(axolotl_full(), {{"saves_per_epoch", "-"}, {"evals_per_epoch", "-"}});
  EXPECT_TRUE(has(refusal(with(plain, {{"save_steps", "50"}, {"save_strategy", "epoch"}})),
                  "save_strategy is 'epoch' and save_steps is 50, which Axolotl refuses; give save_strategy: steps"));
  EXPECT_TRUE(has(refusal(with(plain, {{"eval_steps", "50"}, {"eval_strategy", "epoch"}})),
                  "eval_strategy is 'epoch' and eval_steps is 50, which Axolotl refuses"));
  EXPECT_TRUE(has(refusal(with(plain, {{"evals_per_epoch", "2"}, {"eval_strategy", "epoch"}})), "Axolotl refuses"));
  EXPECT_EQ(refusal(with(plain, {{"save_steps", "50"}, {"save_strategy", "steps"}})), "accepted");
}

TEST(AxolotlData, TrainingOnInputsIsWarnedOfWhereThereAreConversations) {
  const auto said = [](const char* type) {
    return logged(with(axolotl_full(),
                       {{"datasets", fmt::format("[{{path: a, type: {}}}]", type)}, {"train_on_inputs", "true"}}));
  };
  EXPECT_TRUE(has(said("chat_template"), "theirs.yaml:28: train_on_inputs trains every token of a conversation here"))
      << said("chat_template");
  EXPECT_TRUE(has(logged({{"base_model", "m"},
                          {"learning_rate", "1e-5"},
                          {"datasets", "{path: a, type: sharegpt}"},
                          {"train_on_inputs", "true"}}),
                  "trains every token"));
  EXPECT_FALSE(has(said("alpaca"), "trains every token"));
  EXPECT_FALSE(has(said("completion"), "trains every token"));
}

TEST(AxolotlData, TextsOfPretrainingAreJoinedWhenTheFileSaysSoAndElseTheDifferenceIsSaid) {
  const Keys keys = with(axolotl_full(), {{"datasets", "-"},
                                          {"val_set_size", "-"},
                                          {"evals_per_epoch", "-"},
                                          {"sample_packing", "-"},
                                          {"pretraining_dataset", "[{path: a.jsonl}]"},
                                          {"max_steps", "5"}});
  const char* const beginning = "Axolotl trains the first sequence_len - 2 tokens of each text only";
  EXPECT_FALSE(parse(keys).data.packing);
  EXPECT_TRUE(has(logged(keys), beginning)) << logged(keys);
  const Keys joined = with(keys, {{"pretraining_sample_concatenation", "true"}});
  EXPECT_TRUE(parse(joined).data.packing);
  EXPECT_TRUE(has(logged(joined), "a text longer than sequence_len is trained whole here"));
  EXPECT_FALSE(has(logged(with(keys, {{"sample_packing", "true"}})), "Axolotl trains"));
  EXPECT_FALSE(parse(with(axolotl_full(), {{"sample_packing", "false"}, {"pretraining_sample_concatenation", "true"}}))
                   .data.packing);
  EXPECT_TRUE(has(refusal(with(keys, {{"val_set_size", "0.1"}})), "which Axolotl refuses beside pretraining_dataset"));
  EXPECT_TRUE(has(refusal(with(keys, {{"pretraining_dataset", "[{path: a.jsonl}, {path: b.jsonl}]"}})),
                  "pretraining_dataset has 2 datasets, of which Axolotl reads only the first"));
}

TEST(AxolotlTemplates, AreBuiltInOnesByNameWhereConversationsAreTrained) {
  const Keys talks = with(axolotl_full(), {{"datasets", "[{path: a, type: chat_template}]"}});
  for (const auto& [theirs, ours] : Keys{{"chatml", "chatml"},
                                         {"qwen_25", "qwen"},
                                         {"alpaca", "alpaca-plain"},
                                         {"phi_35", "phi"},
                                         {"cohere", ""},
                                         {"tokenizer_default", ""}})
    EXPECT_EQ(parse(with(talks, {{"chat_template", theirs}})).data.chat_template, ours) << theirs;
  EXPECT_TRUE(has(logged(with(talks, {{"chat_template", "cohere"}})), "chat_template cohere is not built in"));
  const Keys no_talk = with(axolotl_full(), {{"datasets", "[{path: a, type: alpaca}]"}, {"chat_template", "chatml"}});
  EXPECT_EQ(parse(no_talk).data.chat_template, "");
}

TEST(AxolotlValues, ThatTheirTrainerRefusesAreRefusedWithTheirLines) {
  for (const char* one : {"1", "1.0"})
    EXPECT_TRUE(has(refusal({{"base_model", "m"}, {"val_set_size", one}}),
                    fmt::format("theirs.yaml:3: val_set_size is {}, which is all samples there", one)));
  EXPECT_EQ(refusal(with(axolotl_full(), {{"val_set_size", "2"}})), "accepted");
  const Keys named = with(axolotl_full(), {{"chat_template", "jinja"}});
  EXPECT_TRUE(has(refusal(named), "chat_template is 'jinja', and no chat_template_jinja says which")) << refusal(named);
  EXPECT_EQ(refusal(with(named, {{"chat_template_jinja", "t.jinja"}})), "accepted");
  EXPECT_TRUE(
      has(refusal(with(axolotl_full(), {{"datasets", "[{path: a, type: chat_template, chat_template: jinja}]"}})),
          "chat_template is 'jinja', and no chat_template_jinja says which"));
}

TEST(AxolotlRates, TheTableSaysWhyAPartOfTheRateIsNotUsed) {
  EXPECT_TRUE(has(logged(with(axolotl_full(), {{"lr_scheduler", "constant"}, {"cosine_min_lr_ratio", "0.1"}})),
                  "it is of the schedule cosine"));
}

TEST(AxolotlWords, AListOnTheCommandLineIsYaml) {
  const TrainConfig config = parse(axolotl_full(), {"--datasets=[{path: b.jsonl, type: completion}]"});
  EXPECT_EQ(config.data.train[0].path, "b.jsonl");
  EXPECT_EQ(config.data.train[0].format, "text");
  EXPECT_TRUE(has(refusal(axolotl_full(), {"--datasets=[{path: b.jsonl, type: wings}]"}), "--datasets: "));
  EXPECT_TRUE(has(refusal(axolotl_full(), {"--datasets=[{path: b.jsonl"}), "expected a list or mapping"));
}

TEST(AxolotlWords, StepsOverAFileWithEpochsSayHowAndEpochsAsNullDoIt) {
  EXPECT_TRUE(has(refusal(axolotl_full(), {"--steps=2"}), "gives num_epochs (epochs) too; add --epochs=null"));
  EXPECT_EQ(parse(axolotl_full(), {"--steps=2", "--epochs=null"}).steps, 2);
  EXPECT_TRUE(has(refusal(with(axolotl_full(), {{"per_device_train_batch_size", "2"}})),
                  "unknown key 'per_device_train_batch_size'; it is a key of LLaMA-Factory"));
}

TEST(AxolotlWords, OnTheCommandLineGoOverTheFileAndOthersAreNamed) {
  EXPECT_EQ(parse(axolotl_full(), {"--micro_batch_size=4"}).batch, 4);
  EXPECT_EQ(parse(axolotl_lora(), {"--adapter=null", "--optim.lr=1e-3"}).optim.lr, 1e-3);
  EXPECT_TRUE(has(refusal(axolotl_full(), {"--template=llama3"}),
                  "--template is a key of LLaMA-Factory, and theirs.yaml is a file of Axolotl"));
  EXPECT_TRUE(has(refusal(axolotl_full(), {"--optim=adamw_torch"}),
                  "--optim is a key of LLaMA-Factory, and theirs.yaml is a file of Axolotl"));
  EXPECT_EQ(parse_config("model: some/name\ndata: {train: a}\nsteps: 1\n", "c.yaml").model.path, "some/name");
  EXPECT_EQ(parse_config("data: {train: a}\nsteps: 1\n", "c.yaml", {"--model", "some/name"}).model.path, "some/name");
}

TEST(AxolotlLength, StepsBelowZeroMeanEpochsAsInTransformers) {
  EXPECT_EQ(parse(with(axolotl_full(), {{"max_steps", "-1"}})).epochs, 1);
  EXPECT_EQ(parse(with(axolotl_full(), {{"max_steps", "7"}})).steps, 7);
}

TEST(AxolotlGpus, WhatSplitsAStepHasNoEffectAndWhatRepeatsItIsWarnedOf) {
  const auto with_key = [](const char* name, const char* value) {
    TrainConfig config = parse(with(axolotl_full(), {{name, value}}));
    config.translation.clear();
    return config;
  };
  for (const char* name : {"tensor_parallel_size", "context_parallel_size", "expert_parallel_size", "dp_shard_size",
                           "dp_replicate_size", "ray_num_workers"}) {
    EXPECT_EQ(with_key(name, "2").batch, 1) << name;
    const std::string warning = fmt::format("{} is 2: there as many GPUs each take the samples of a step", name);
    const bool splits = has(name, "tensor") || has(name, "context");
    EXPECT_EQ(has(logged(with(axolotl_full(), {{name, "2"}})), warning), !splits) << name;
    EXPECT_FALSE(has(logged(with(axolotl_full(), {{name, "1"}})), "as many GPUs")) << name;
  }
  EXPECT_TRUE(has(refusal(with(axolotl_full(), {{"dp_shard_size", "many"}})), "dp_shard_size is 'many', expected"));
}

TEST(AxolotlModel, TheLossOfTheRouterIsTheOnlyOverrideOfItsConfiguration) {
  const auto keys = [](const char* value) { return with(axolotl_full(), {{"model_config", value}}); };
  EXPECT_TRUE(parse(keys("{output_router_logits: true}")).moe.aux_loss_of_model);
  EXPECT_EQ(parse(keys("{output_router_logits: false}")).moe.aux_loss, 0);
  EXPECT_FALSE(parse(keys("")).moe.aux_loss_of_model);
  EXPECT_TRUE(has(refusal(keys("{output_router_logits: true, rope_theta: 5}")),
                  "model_config has rope_theta, which megatrain does not override; change the model's config.json"));
  EXPECT_TRUE(has(refusal(keys("{output_router_logits: maybe}")), "output_router_logits is 'maybe', expected true"));
}

TEST(AxolotlFreezing, TheirPatternsBecomeExpressionsThatMatchTheBeginningOfAName) {
  const auto patterns = [](const std::string& list) {
    return parse(with(axolotl_full(), {{"unfrozen_parameters", list}})).train_only;
  };
  EXPECT_EQ(patterns("[^lm_head.weight$, 'layers.4[4-9]+.mlp', 'a.+b']"),
            (std::vector<std::string>{R"(^(?:lm_head\.weight$).*)", R"(^(?:layers\.4[4-9]+\.mlp).*)", "^(?:a.+b).*"}));
  EXPECT_EQ(patterns("model.embed"), std::vector<std::string>{R"(^(?:model\.embed).*)"});
  const auto refused = [](const std::string& list) {
    return refusal(with(axolotl_full(), {{"unfrozen_parameters", list}}));
  };
  EXPECT_TRUE(
      has(refused("['^model.embed_tokens.weight$[:32000]']"), "expected whole tensors: leave the rows [:32000]"));
  EXPECT_TRUE(has(refused("['model.layers.1{1,2}']"), "expected patterns without a comma"));
  EXPECT_TRUE(has(logged(axolotl_lora({{"unfrozen_parameters", "[^lm_head.*]"}})),
                  "unfrozen_parameters has no effect beside adapter"));
  EXPECT_TRUE(parse(axolotl_lora({{"unfrozen_parameters", "[^lm_head.*]"}})).train_only.empty());
}

TEST(AxolotlValues, ThatAreComputedOtherwiseAreWarnedOf) {
  EXPECT_TRUE(has(logged(with(axolotl_full(), {{"fp8", "true"}})), "fp8 is not supported: matmuls compute in"));
  EXPECT_FALSE(has(logged(with(axolotl_full(), {{"fp8", "false"}})), "fp8 is not supported"));
  EXPECT_TRUE(has(logged(with(axolotl_full(), {{"tokenizer_use_mistral_common", "true"}})),
                  "tokenizer_use_mistral_common is not supported: the model's tokenizer.json and chat template"));
  const TrainConfig small = parse(with(axolotl_full(), {{"optimizer", "adamw_torch_4bit"}}));
  EXPECT_EQ(small.state.moments, "int8");
  EXPECT_TRUE(has(small.translation, "moments of 8 bits, in megatrain's own blocks; there of 4 bits"));
}

}  // namespace
}  // namespace megatrain
