#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/config/config.h"
#include "megatrain/train/optim_settings.h"
#include "tests/support/chat_fixture.h"
#include "tests/support/foreign_file.h"
#include "tests/support/llamafactory_examples.h"

namespace megatrain {
namespace {

// LLaMA-Factory's demo datasets with their numbers of samples, and a tiny model that reads them.
class Factory : public ChatFixture {
 protected:
  void SetUp() override {
    ChatFixture::SetUp();
    std::filesystem::create_directories(at("data"));
    write_set("identity", 91);
    write_set("alpaca_en_demo", 999);
    write("data/dataset_info.json",
          R"({"identity": {"file_name": "identity.json"}, "alpaca_en_demo": {"file_name": "alpaca_en_demo.json"}})");
  }

  void write_set(const std::string& name, int64_t samples) {
    nlohmann::json rows = nlohmann::json::array();
    for (int64_t i = 0; i < samples; ++i)
      rows.push_back({{"instruction", fmt::format("{} {}", name, i)}, {"input", ""}, {"output", "yes"}});
    write("data/" + name + ".json", rows.dump());
  }

  RunData open(TrainConfig config) {
    config.model.path = "";
    config.model.config = at("model/config.json");
    config.data.tokenizer = at("model");
    config.data.chat_template = "";  // the tokenizer lacks the tokens of the named ones
    config.data.cache = at("cache");
    if (config.data.info == "data") config.data.info = at("data");
    return open_data(config, model_source());
  }

  static int64_t samples_of_step(SampleData& data, int64_t step, int64_t batch) {
    int64_t samples = 0;
    for (int64_t i = step * batch; i < (step + 1) * batch; ++i) samples += std::ssize(data.sequence(i));
    return samples;
  }
};

TEST_F(Factory, NineteenOfTheirExamplesHaveTheirSamplesStepsRatesAndWarmup) {
  std::string table = fmt::format("{:38} {:>7} {:>6} {:>6} {:>6} {:>9} {:>11}\n", "file", "samples", "a step", "steps",
                                  "warmup", "lr", "lr(last)");
  int64_t compared = 0;
  for (const Example& example : trained_examples()) {
    SCOPED_TRACE(example.name);
    TrainConfig config = parse(example.keys, example.words);
    const TheirRules theirs(example.keys);

    EXPECT_EQ(config.model.path, "models/m");
    EXPECT_EQ(config.batch, theirs.samples_a_step());
    EXPECT_EQ(config.micro_batch, theirs.whole("per_device_train_batch_size", 8));
    EXPECT_EQ(config.seq_len, theirs.whole("cutoff_len", 2048));
    EXPECT_EQ(config.data.packing, theirs.text("stage", "sft") == "pt");  // packing is on only in pre-training
    EXPECT_EQ(config.data.info, theirs.text("dataset_dir", "data"));
    EXPECT_EQ(config.data.max_samples, theirs.whole("max_samples", 0));
    EXPECT_EQ(config.data.eval_split, theirs.number("val_size", 0));
    EXPECT_EQ(config.data.train_on, "assistant");
    EXPECT_EQ(config.data.overlong, "by_turn");
    EXPECT_TRUE(config.data.shuffle);
    EXPECT_EQ(config.seed, static_cast<uint64_t>(theirs.whole("seed", 42)));
    EXPECT_EQ(config.optim.lr, theirs.number("learning_rate", 5e-5));
    EXPECT_EQ(config.optim.schedule, theirs.text("lr_scheduler_type", "linear"));
    EXPECT_EQ(config.optim.weight_decay, theirs.number("weight_decay", 0));
    EXPECT_EQ(config.optim.beta1, 0.9);
    EXPECT_EQ(config.optim.beta2, 0.999);
    EXPECT_EQ(config.optim.eps, 1e-8);
    EXPECT_EQ(config.optim.clip, theirs.number("max_grad_norm", 1.0));
    EXPECT_EQ(config.optim.min_lr, 0);
    EXPECT_EQ(config.precision, theirs.flag("bf16") || theirs.flag("pure_bf16") ? "bf16" : "fp32");
    EXPECT_EQ(config.checkpoint.every, theirs.whole("save_steps", 500));
    EXPECT_GE(config.checkpoint.keep, 1'000'000);  // save_total_limit: none
    EXPECT_EQ(config.eval.every, 0);
    EXPECT_FALSE(config.resume);
    EXPECT_EQ(config.run_dir, "saves/run");

    const std::string resolved = resolved_yaml(config);
    TrainConfig again = parse_config(resolved, "resolved");
    EXPECT_EQ(again.translation, "") << "nothing is left to translate";
    again.translation = config.translation;
    again.names = config.names;
    again.stage = config.stage;
    EXPECT_EQ(again, config);

    if (config.data.packing) continue;  // packing gives another number of sequences than theirs, and the table says so
    RunData data = open(config);
    const int64_t samples = samples_of(theirs.text("dataset", ""), theirs.whole("max_samples", 0));
    ASSERT_EQ(data.train_samples->counts().samples, samples);
    const int64_t steps = theirs.steps(samples), epoch = theirs.steps_an_epoch(samples);
    config.steps = steps_of_run(config, *data.train);
    EXPECT_EQ(config.steps, steps);
    // Full steps, plus one for the remainder at the end of every epoch.
    for (const int64_t step : {int64_t{0}, epoch - 2, epoch - 1, epoch, 2 * epoch - 1}) {
      if (step < 0 || step >= steps) continue;
      const bool last = (step + 1) % epoch == 0;
      EXPECT_EQ(samples_of_step(*data.train_samples, step, config.batch),
                last ? samples - (epoch - 1) * config.batch : config.batch)
          << "step " << step;
    }
    const LearningRate schedule = learning_rate_of(config);
    EXPECT_EQ(warmup_steps(schedule), theirs.warmup(steps));
    for (int64_t done = 0; done < steps; ++done)
      ASSERT_DOUBLE_EQ(learning_rate(schedule, done + 1), theirs.rate(done, steps)) << "after " << done << " steps";
    table += fmt::format("{:38} {:7} {:6} {:6} {:6} {:9.1e} {:11.3e}\n", example.name, samples, config.batch, steps,
                         warmup_steps(schedule), config.optim.lr, learning_rate(schedule, steps));
    ++compared;
  }
  EXPECT_GE(compared, 17);
  std::fputs(table.c_str(), stdout);
}

TEST_F(Factory, TheStockFullFineTuningFileHas545StepsAnEpoch) {
  const Example stock = trained_examples().front();
  const TrainConfig config = parse(stock.keys);
  RunData data = open(config);
  EXPECT_EQ(data.train_samples->counts().sequences, 91 + 999);
  EXPECT_EQ(data.train->steps(), 3 * 545);
}

// From transformers' own schedule functions (optimization.py), at the number of updates done before the step.
TEST(FactoryRates, AreThoseOfTransformersScheduleFunctions) {
  const auto rates = [](const Keys& more, int64_t steps) {
    TrainConfig config = parse(with(supervised(), more));
    config.steps = steps;
    return learning_rate_of(config);
  };
  const LearningRate cosine = rates({}, 1635);
  for (const auto& [step, lr] : {std::pair<int64_t, double>{1, 0.0},
                                 {2, 6.097560975609757e-08},
                                 {100, 6.0365853658536585e-06},
                                 {164, 9.939024390243903e-06},
                                 {165, 1e-05},
                                 {166, 9.999988597128151e-06},
                                 {1000, 3.945475164555637e-06},
                                 {1635, 1.1402871848975594e-11}})
    EXPECT_DOUBLE_EQ(learning_rate(cosine, step), lr) << step;
  const LearningRate linear = rates({{"lr_scheduler_type", "-"}, {"learning_rate", "-"}, {"warmup_ratio", "-"}}, 411);
  for (const auto& [step, lr] : {std::pair<int64_t, double>{1, 5e-05},
                                 {2, 4.987834549878346e-05},
                                 {206, 2.5060827250608277e-05},
                                 {411, 1.21654501216545e-07}})
    EXPECT_DOUBLE_EQ(learning_rate(linear, step), lr) << step;
  const LearningRate least = rates({{"lr_scheduler_type", "cosine_with_min_lr"},
                                    {"lr_scheduler_kwargs", "{min_lr: 2e-6}"},
                                    {"learning_rate", "2e-5"}},
                                   100);
  for (const auto& [step, lr] : {std::pair<int64_t, double>{1, 0.0},
                                 {6, 1e-05},
                                 {11, 2e-05},
                                 {60, 9.747442091359414e-06},
                                 {100, 2.005482556828138e-06}})
    EXPECT_NEAR(learning_rate(least, step), lr, 1e-19) << step;
  const LearningRate constant =
      rates({{"lr_scheduler_type", "constant_with_warmup"}, {"learning_rate", "3e-5"}, {"warmup_steps", "10"}}, 100);
  for (const auto& [step, lr] : {std::pair<int64_t, double>{1, 0.0}, {6, 1.5e-05}, {11, 3e-05}, {60, 3e-05}})
    EXPECT_DOUBLE_EQ(learning_rate(constant, step), lr) << step;
  for (const char* kwargs :
       {"{min_lr: 2e-6, num_cycles: 1}", "{min_lr: {a: 1}}", "{min_lr: 1e-6, x: [1]}", "{x: 1}", "7"})
    EXPECT_TRUE(
        has(refusal(with(supervised(), {{"lr_scheduler_type", "cosine_with_min_lr"}, {"lr_scheduler_kwargs", kwargs}})),
            "expected"))
        << kwargs;
  // get_constant_schedule has no warmup; 0.07 * 100 is slightly more than 7.
  EXPECT_DOUBLE_EQ(learning_rate(rates({{"lr_scheduler_type", "constant"}}, 100), 1), 1e-5);
  EXPECT_EQ(warmup_steps(rates({{"warmup_ratio", "0.07"}}, 100)), 8);
}

TEST(FactoryDefaults, AMinimalFileHasTheirsNotOurs) {
  const TrainConfig config =
      parse({{"model_name_or_path", "m"}, {"stage", "sft"}, {"finetuning_type", "full"}, {"dataset", "d"}});
  EXPECT_FALSE(config.data.packing);
  EXPECT_EQ(config.seq_len, 2048);
  EXPECT_EQ(config.optim.lr, 5e-5);
  EXPECT_EQ(config.optim.schedule, "linear");
  EXPECT_EQ(config.optim.weight_decay, 0);
  EXPECT_EQ(config.batch, 8);
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.data.overlong, "by_turn");
  EXPECT_EQ(config.seed, 42u);
  EXPECT_EQ(config.data.info, "data");
  EXPECT_EQ(config.checkpoint.every, 500);
  EXPECT_EQ(config.conventions, "transformers");
}

TEST(FactoryDefaults, TheStageIsAFactOfTheConfigurationAndNoNameOfAKey) {
  EXPECT_EQ(parse(supervised()).stage, "sft");
  EXPECT_EQ(parse(with(supervised(), {{"stage", "pt"}})).stage, "pt");
  EXPECT_EQ(parse(with(supervised(), {{"stage", "pt"}}), {"--stage=sft"}).stage, "sft");
  EXPECT_EQ(parse(with(supervised(), {{"stage", "-"}})).stage, "sft") << "their default";
  EXPECT_EQ(parse(with(supervised(), {{"stage", "null"}})).stage, "sft");
  EXPECT_FALSE(parse(supervised()).names.is_theirs("stage: sft"));
  EXPECT_EQ(parse_config("model: {path: m}\nsteps: 1\ndata: {tokens: t}\n", "ours.yaml").stage, "");
}

TEST(FactoryDefaults, OneKeyOfOursBesideTheirModelChangesThatKeyAlone) {
  const Keys keys = supervised();
  const TrainConfig plain = parse(keys);
  TrainConfig other = parse(with(keys, {{"memory", "{gpu: 20GiB}"}}));
  EXPECT_EQ(other.memory.gpu_bytes, int64_t{20} << 30);
  other.memory = plain.memory;
  EXPECT_EQ(other, plain);
  EXPECT_EQ(parse(keys, {"--optim.lr=1e-3"}).optim.lr, 1e-3);
  EXPECT_EQ(parse(with(keys, {{"num_train_epochs", "-"}}), {"--steps=7"}).steps, 7);
  EXPECT_EQ(parse(with(keys, {{"num_train_epochs", "-"}}), {"--steps=7"}).epochs, 0);
  EXPECT_EQ(
      parse(with(keys, {{"per_device_train_batch_size", "-"}, {"gradient_accumulation_steps", "-"}}), {"--batch=4"})
          .batch,
      4);
}

TEST(FactoryDefaults, OneKeyOfTheirsInAFileOfOursChangesThatKeyAlone) {
  const char* const ours = "model: {path: m}\ndata: {train: a.jsonl}\nsteps: 5\n";
  TrainConfig config = parse_config(std::string(ours) + "learning_rate: 1e-3\n", "c.yaml");
  EXPECT_EQ(config.optim.lr, 1e-3);
  config.optim.lr = TrainConfig().optim.lr;
  config.translation = "";
  config.names = {};
  EXPECT_EQ(config, parse_config(ours, "c.yaml"));
  // without any key of ours it is read as theirs, however few keys it has
  EXPECT_EQ(parse_config("cutoff_len: 512\ndataset: d\nseed: 3\n", "c.yaml", {"--model.path=m"}).batch, 8);
}

TEST(FactoryTable, HasEveryKeyWithWhatItBecameAndWhetherItWasGiven) {
  testing::internal::CaptureStderr();
  const Keys keys = trained_examples().front().keys;
  const TrainConfig config = parse(keys, {"--optim.clip=2"});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(has(log, config.translation)) << log;
  const auto row = [&](const std::string& theirs, const std::string& here, const std::string& from) {
    for (size_t begin = 0; begin < config.translation.size();) {
      const size_t end = config.translation.find('\n', begin);
      const std::string line = config.translation.substr(begin, end - begin);
      if (line.starts_with(theirs + "  ") && has(line, "  " + here) && line.ends_with("  " + from)) return true;
      begin = end + 1;
    }
    return false;
  };
  EXPECT_TRUE(row("learning_rate: 1.0e-5", "optim.lr: 1e-05", "given")) << config.translation;
  EXPECT_TRUE(row("weight_decay: 0", "optim.weight_decay: 0", "default"));
  EXPECT_TRUE(row("per_device_train_batch_size: 1 x gradient_accumulation_steps: 2", "batch: 2", "given"));
  EXPECT_TRUE(row("max_grad_norm: 1.0", "optim.clip: 2", "--optim.clip"));
  EXPECT_TRUE(row("template: llama3", "data.template: \"llama3\"", "given"));
  EXPECT_TRUE(row("packing: false", "data.packing: false", "default"));
  EXPECT_TRUE(row("save_total_limit: null", "checkpoint.keep: 1000000000 (all stay)", "default"));
  for (const auto& [name, value] : keys) EXPECT_TRUE(has(config.translation, name + ": " + value + "  ")) << name;
  EXPECT_FALSE(has(log, "is read as"));
}

TEST(FactoryTable, AMissingFinetuningTypeIsLoraAsTheirs) {
  const std::string log = logged(with(supervised(), {{"finetuning_type", "-"}}));
  EXPECT_TRUE(has(log, "finetuning_type: lora")) << log;
  EXPECT_TRUE(has(log, "the weights are frozen, and adapters are trained")) << log;
}

TEST(FactoryTable, TextsWithoutPackingAreWarnedAboutBecauseTheirsAreCut) {
  const Keys texts = with(supervised(), {{"stage", "pt"}});
  EXPECT_FALSE(has(logged(texts), "LLaMA-Factory trains only the first cutoff_len"));
  const std::string log = logged(with(texts, {{"packing", "false"}}));
  EXPECT_TRUE(has(log, "LLaMA-Factory trains only the first cutoff_len")) << log;
}

TEST(FactoryMethods, ThatAreNotThereAreNamedBeforeUnknownKeysAre) {
  for (const RefusedExample& each : refused_examples()) expect_method_named(each);
}

TEST(FactoryMethods, TheirParametersAskForNothingWhileTheMethodIsOff) {
  const TrainConfig plain = parse(supervised());
  TrainConfig other = parse(with(supervised(), {{"lora_rank", "8"},
                                                {"use_galore", "false"},
                                                {"galore_rank", "4"},
                                                {"pref_beta", "0.1"},
                                                {"quantization_bit", "null"}}));
  EXPECT_TRUE(has(other.translation, "not used: it belongs to LoRA"));
  other.translation = plain.translation;
  EXPECT_EQ(other, plain);
}

TEST(FactoryMethods, TrackersAndHubsAskForNothingUnlessAModelIsUploaded) {
  EXPECT_EQ(refusal(with(supervised(), {{"use_swanlab", "true"}, {"swanlab_project", "p"}, {"hub_model_id", "o/n"}})),
            "accepted");
  EXPECT_TRUE(has(refusal(with(supervised(), {{"push_to_hub", "true"}})), "nothing is uploaded"));
}

TEST(FactoryMethods, DefaultsOfModelsThatSeeAskForNothingAndOtherValuesAreRefused) {
  const Keys theirs = {
      {"freeze_vision_tower", "true"}, {"freeze_multi_modal_projector", "true"}, {"freeze_language_model", "false"}};
  EXPECT_EQ(refusal(with(supervised(), theirs)), "accepted");
  EXPECT_TRUE(has(refusal(with(supervised(), {{"freeze_vision_tower", "false"}})),
                  "freeze_vision_tower is 'false', expected true or null"));
  EXPECT_TRUE(has(refusal(with(supervised(), {{"freeze_language_model", "true"}})), "expected false or null"));
}

TEST(FactoryHints, ComeOnlyForNamesThatAreNear) {
  const auto unknown = [](const std::string& name) { return refusal(with(supervised(), {{name, "1"}})); };
  EXPECT_TRUE(unknown("learnin_rate").ends_with("unknown key 'learnin_rate'; did you mean 'learning_rate'?"));
  EXPECT_TRUE(unknown("optin").ends_with("did you mean 'optim'?"));
  EXPECT_TRUE(unknown("gradient_acumulation_steps").ends_with("did you mean 'gradient_accumulation_steps'?"));
  EXPECT_TRUE(unknown("sequence_len").ends_with("unknown key 'sequence_len'; it is a key of Axolotl"));
  for (const char* far : {"rank", "vision", "colour_of_the_model", "xy", "planetary"})
    EXPECT_TRUE(unknown(far).ends_with("`megatrain train --help` lists the keys")) << unknown(far);
  // also in a file of ours
  for (const char* far : {"optim.momentum", "vision_model"}) {
    try {
      parse_config(fmt::format("model.path: m\nsteps: 1\n{}: 1\n", far), "c.yaml");
      ADD_FAILURE() << far;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()),
                fmt::format("c.yaml:3: unknown key '{}'; `megatrain train --help` lists the keys", far));
    }
  }
}

TEST(FactoryValues, BooleansAreThoseOfTheirYamlParser) {
  const auto train_on = [](const std::string& key, const std::string& value) {
    return parse(with(supervised(), {{key, value}})).data.train_on;
  };
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "1"}) {
    EXPECT_EQ(train_on("mask_history", yes), "last") << yes;
    EXPECT_EQ(train_on("train_on_prompt", yes), "all") << yes;
    EXPECT_FALSE(parse(with(supervised(), {{"disable_shuffling", yes}})).data.shuffle);
    EXPECT_TRUE(parse(with(supervised(), {{"packing", yes}})).data.packing);
  }
  for (const char* no : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "0", "null", "~", ""}) {
    EXPECT_EQ(train_on("mask_history", no), "assistant") << no;
    EXPECT_EQ(train_on("train_on_prompt", no), "assistant") << no;
  }
  for (const char* neither : {"2", "maybe", "tRUE", "y", "n", "-1", "true story"}) {
    for (const char* key : {"mask_history", "train_on_prompt", "packing", "neat_packing", "bf16", "disable_shuffling",
                            "load_best_model_at_end", "do_train"})
      EXPECT_TRUE(has(refusal(with(supervised(), {{key, neither}})),
                      fmt::format("{} is '{}', expected true or false", key, neither)))
          << key << " " << neither << ": " << refusal(with(supervised(), {{key, neither}}));
  }
  EXPECT_TRUE(has(refusal(with(supervised(), {{"mask_history", "1"}, {"train_on_prompt", "1"}})), "keep one"));
}

TEST(FactoryValues, AListOrASectionForOneValueIsRefused) {
  for (const char* key : {"output_dir", "learning_rate", "cutoff_len", "packing", "bf16", "max_steps", "warmup_ratio",
                          "lr_scheduler_type", "dataset_dir", "model_name_or_path"}) {
    EXPECT_TRUE(has(refusal(with(supervised(), {{key, "[1]"}})), fmt::format("{} is a list, expected one value", key)))
        << refusal(with(supervised(), {{key, "[1]"}}));
    EXPECT_TRUE(
        has(refusal(with(supervised(), {{key, "{a: 1}"}})), fmt::format("{} is a section, expected one value", key)))
        << refusal(with(supervised(), {{key, "{a: 1}"}}));
  }
}

TEST(FactoryValues, WhatWouldBeIgnoredIsRefused) {
  EXPECT_TRUE(has(refusal(with(supervised(), {{"resume_from_checkpoint", "saves/run/checkpoint-500"}})),
                  "resume_from_checkpoint is 'saves/run/checkpoint-500', expected true or false"));
  EXPECT_TRUE(has(refusal(with(supervised(), {{"tokenized_path", "/tmp"}})),
                  "tokenized_path /tmp exists, and LLaMA-Factory would train only on it"));
  EXPECT_TRUE(has(refusal(with(supervised(), {{"max_samples", "0"}})), "max_samples is 0, which leaves no sample"));
}

TEST(FactoryTemplates, AreBuiltInOnesByNameAndTheThinkingSwitchIsObeyedOrRefused) {
  const auto named = [](const Keys& more) { return parse(with(supervised(), more)).data.chat_template; };
  for (const auto& [theirs, ours] : Keys{{"chatml", "chatml"},
                                         {"gemma2", "gemma"},
                                         {"gpt_oss", "gpt-oss"},
                                         {"qwen3_nothink", "qwen3-nothink"},
                                         {"vicuna", "vicuna"},
                                         {"yi", ""}})
    EXPECT_EQ(named({{"template", theirs}}), ours) << theirs;
  EXPECT_EQ(named({{"template", "-"}}), "");
  EXPECT_TRUE(has(logged(with(supervised(), {{"template", "yi"}})), "template yi is not built in"));
  EXPECT_EQ(named({{"template", "qwen3"}, {"enable_thinking", "true"}}), "qwen3");
  EXPECT_EQ(named({{"template", "qwen3"}, {"enable_thinking", "false"}}), "qwen3-thinking-off");
  EXPECT_EQ(named({{"template", "llama3"}, {"enable_thinking", "false"}}), "llama3") << "it never thinks there";
  const auto refused = [](const char* name, const char* value) {
    return refusal(with(supervised(), {{"template", name}, {"enable_thinking", value}}));
  };
  EXPECT_TRUE(has(refused("qwen3", "null"), "enable_thinking is null, which trains thoughts but no empty ones"));
  for (const char* name : {"glm4_moe", "gpt_oss"})
    EXPECT_TRUE(has(refused(name, "false"), "enable_thinking is 'false', expected true; only template: qwen3 obeys it"))
        << refused(name, "false");
  EXPECT_EQ(parse(with(supervised(), {{"template", "llama3"}}), {"--data.template=mine.jinja"}).data.chat_template,
            "mine.jinja");
}

TEST(FactoryValues, ThatTheirTrainerRefusesAreRefusedWithTheirLines) {
  EXPECT_TRUE(has(refusal({{"model_name_or_path", "m"}, {"bf16", "true"}, {"fp16", "true"}}),
                  "theirs.yaml:4: bf16 and fp16 are both true, which the trainer refuses; keep bf16"));
  EXPECT_TRUE(has(refusal({{"model_name_or_path", "m"}, {"template", "qwenn"}}),
                  "theirs.yaml:3: template is 'qwenn', which is not a template of LLaMA-Factory"));
  EXPECT_TRUE(has(refusal({{"model_name_or_path", "m"}, {"val_size", "1"}}), "theirs.yaml:3: val_size is 1, which is"));
  const std::string twice = refusal({{"model_name_or_path", "m"}, {"val_size", "some"}});
  EXPECT_TRUE(twice.starts_with("theirs.yaml:3: val_size is 'some'"))
      << "two rules read it, and it is said once: " << twice;
}

TEST(FactoryValues, NumbersAreThoseOfTheirYamlParser) {
  const auto with_value = [](const std::string& key, const std::string& value) {
    return parse(with(supervised(), {{key, value}}));
  };
  EXPECT_EQ(with_value("learning_rate", "5e-5").optim.lr, 5e-5);
  EXPECT_EQ(with_value("learning_rate", "\"5e-5\"").optim.lr, 5e-5);
  EXPECT_EQ(with_value("learning_rate", "+1.0E-4").optim.lr, 1e-4);
  EXPECT_EQ(with_value("max_samples", "10_000").data.max_samples, 10000);
  EXPECT_EQ(with_value("max_samples", "null").data.max_samples, 0);
  EXPECT_EQ(with_value("save_steps", "1_000").checkpoint.every, 1000);
  EXPECT_EQ(with_value("save_steps", "500.0").checkpoint.every, 500);
  EXPECT_EQ(with_value("max_grad_norm", "0").optim.clip, 0);
  EXPECT_EQ(with_value("moe_aux_loss_coef", "0.02").moe.aux_loss, 0.02);
  EXPECT_EQ(with_value("moe_aux_loss_coef", "null").moe.aux_loss, std::nullopt);
  EXPECT_EQ(with_value("warmup_steps", "20").optim.warmup, 20);
  EXPECT_EQ(with_value("warmup_steps", "0").optim.warmup, 0.1);
  EXPECT_EQ(with_value("save_strategy", "\"no\"").checkpoint.every, 0);
  for (const auto& [key, value] : Keys{{"learning_rate", "fast"},
                                       {"learning_rate", "null"},
                                       {"learning_rate", "1__0"},
                                       {"cutoff_len", "2k"},
                                       {"cutoff_len", "null"},
                                       {"cutoff_len", "010"},
                                       {"cutoff_len", "100.5"},
                                       {"per_device_train_batch_size", "0"},
                                       {"gradient_accumulation_steps", "auto"},
                                       {"num_train_epochs", "three"},
                                       {"warmup_ratio", "1.5"},
                                       {"save_strategy", "best"},
                                       {"eval_strategy", "sometimes"},
                                       {"dataset_dir", "ONLINE"},
                                       {"dataloader_drop_last", "true"},
                                       {"mix_strategy", "interleave_under"},
                                       {"lr_scheduler_type", "warmup_stable_decay"},
                                       {"push_to_hub", "true"},
                                       {"optim", "lion_8bit"},
                                       {"ray_num_workers", "-4"},
                                       {"use_packed_sequences", "true"}})
    EXPECT_TRUE(has(refusal(with(supervised(), {{key, value}})), ": " + key + " is "))
        << key << ": " << value << ": " << refusal(with(supervised(), {{key, value}}));
}

TEST(FactoryEngines, OfOthersTrainByTheRulesHereAndTheDifferenceIsWarnedOf) {
  const auto said = [](const char* name, const char* value) { return logged(lora({{name, value}})); };
  EXPECT_TRUE(
      has(said("use_kt", "true"), "use_kt: KTransformers may give adapters to experts, which stay frozen here"));
  EXPECT_TRUE(has(said("use_mca", "true"), "use_mca is of a run with Megatron: here the rules of LLaMA-Factory"));
  EXPECT_TRUE(has(said("expert_model_parallel_size", "2"), "expert_model_parallel_size is of a run with Megatron"));
  EXPECT_TRUE(has(said("fp8", "true"), "fp8 is not supported: matmuls compute in the format of precision"));
  EXPECT_TRUE(has(said("ray_num_workers", "4"), "ray_num_workers is 4: there as many GPUs each take the samples"));
  for (const char* name : {"use_kt", "use_mca", "fp8"}) EXPECT_FALSE(has(said(name, "false"), "theirs.yaml:")) << name;
  EXPECT_FALSE(has(said("ray_num_workers", "1"), "as many GPUs"));
}

TEST(FactoryData, OfARepositoryIsReadFromADirectoryOfItsName) {
  const Keys keys = with(supervised(), {{"dataset_dir", "REMOTE:some/where"}});
  EXPECT_EQ(parse(keys).data.info, "some/where");
  EXPECT_TRUE(has(logged(keys), "get it with 'hf download some/where --repo-type dataset --local-dir some/where'"));
}

TEST(FactorySaves, MayBeAPartOfTheRunOrEveryEpoch) {
  const auto every = [](const Keys& more) { return parse(with(supervised(), more)); };
  EXPECT_EQ(every({{"save_steps", "0.1"}}).checkpoint.every_part, 0.1);
  EXPECT_EQ(every({{"save_strategy", "epoch"}}).checkpoint.every_part, 1);
  EXPECT_EQ(every({{"save_strategy", "epoch"}, {"save_steps", "7"}}).checkpoint.every, 0);
  EXPECT_EQ(every({{"val_size", "0.1"}, {"eval_strategy", "epoch"}}).eval.every_part, 1);
  EXPECT_EQ(every({{"optim", "paged_adamw_8bit"}}).state.moments, "int8");
}

// `model: NAME` beside train_dataset and plugin sections.
TEST(FactoryV1, HasItsOwnDefaultsAndRefusals) {
  const Keys stock = {{"model", "Org/Name"},
                      {"model_class", "llm"},
                      {"kernel_config", "{name: auto}"},
                      {"quant_config", "null"},
                      {"dist_config", "{name: fsdp2, dcp_path: null}"},
                      {"train_dataset", "data/list.yaml"},
                      {"output_dir", "out"},
                      {"micro_batch_size", "2"},
                      {"learning_rate", "1.0e-4"},
                      {"max_steps", "10"},
                      {"template", "qwen3_nothink"},
                      {"sample_backend", "hf"}};
  const TrainConfig config = parse(stock);
  EXPECT_EQ(config.model.path, "Org/Name");
  EXPECT_EQ(config.data.train[0].path, "data/list.yaml");
  EXPECT_EQ(config.batch, 2);
  EXPECT_EQ(config.micro_batch, 2);
  EXPECT_EQ(config.steps, 10);
  EXPECT_EQ(config.seq_len, 2048);
  EXPECT_EQ(config.optim.schedule, "constant");
  EXPECT_EQ(config.optim.warmup, 0);
  EXPECT_EQ(config.optim.weight_decay, 0.01);
  EXPECT_EQ(config.data.overlong, "truncate");
  EXPECT_FALSE(config.data.packing);
  EXPECT_EQ(config.precision, "bf16");
  EXPECT_EQ(config.checkpoint.every, 0);
  EXPECT_EQ(parse(with(stock, {{"global_batch_size", "16"}})).batch, 16);
  EXPECT_EQ(parse(with(stock, {{"max_steps", "-"}})).epochs, 3);
  const Keys epochs = with(stock, {{"max_steps", "-"}, {"num_train_epochs", "2"}});
  EXPECT_EQ(parse(epochs).epochs, 2);
  EXPECT_TRUE(has(refusal(epochs, {"--steps=5"}), "gives num_train_epochs (epochs) too; add --epochs=null"));
  EXPECT_EQ(parse(epochs, {"--steps=5", "--epochs=null"}).steps, 5);
  for (const auto& [name, value] : Keys{{"peft_config", "{name: oft}"},
                                        {"peft_config", "{name: freeze}"},
                                        {"quant_config", "{name: bnb, quantization_bit: 4}"},
                                        {"optim_config", "{name: muon}"},
                                        {"batching_strategy", "dynamic_batching"}})
    EXPECT_TRUE(has(refusal(with(stock, {{name, value}})), ", which megatrain does not do; ")) << name << value;
  EXPECT_TRUE(has(refusal(with(stock, {{"dp_size", "2"}})), "several GPUs"));
  EXPECT_EQ(parse(with(stock, {{"cp_size", "2"}})).batch, 2) << "it splits a sequence";
  const Keys experts = with(stock, {{"dist_config", "{name: fsdpturbo, ep_size: 16}"}});
  const std::string more = "dist_config.ep_size is 16: there at least as many GPUs each take micro_batch_size samples";
  EXPECT_TRUE(has(logged(experts), more));
  EXPECT_FALSE(has(logged(with(experts, {{"global_batch_size", "16"}})), more));
  const std::string both = refusal(with(stock, {{"peft_config", "{name: freeze}"}, {"quant_config", "{name: bnb}"}}));
  EXPECT_TRUE(has(both, "asks for a choice of layers (freeze)") && has(both, "asks for a quantised model")) << both;
}

TEST(FactoryFiles, ThatAreNoConfigurationOfATrainingAreSaidToBe) {
  EXPECT_TRUE(has(refusal({{"compute_environment", "LOCAL_MACHINE"}, {"rdzv_backend", "static"}}),
                  "theirs.yaml is accelerate's description of processes and GPUs"));
}

TEST(FactoryEvaluation, HappensWhenTheirStrategySays) {
  const Keys held = with(supervised(), {{"val_size", "0.1"}, {"eval_steps", "200"}});
  EXPECT_EQ(parse(held).eval.every, 0);  // eval_strategy is no
  EXPECT_EQ(parse(with(held, {{"eval_strategy", "steps"}})).eval.every, 200);
  EXPECT_EQ(parse(with(held, {{"eval_strategy", "steps"}, {"eval_steps", "-"}})).eval.every, 10);  // logging_steps
  EXPECT_EQ(parse(with(held, {{"eval_strategy", "no"}})).eval.every, 0);
}

TEST_F(Factory, AFractionForEvaluationIsRoundedUpAsTheirsIs) {
  const Keys keys = with(supervised(), {{"val_size", "0.1"}, {"gradient_accumulation_steps", "1"}});
  RunData data = open(parse(keys));
  EXPECT_EQ(data.eval_samples->counts().samples, 109);  // 10% of 1090
  RunData other = open(parse(with(keys, {{"val_size", "0.03"}})));
  EXPECT_EQ(other.eval_samples->counts().samples, 33);  // 32.7, rounded up
  RunData more = open(parse(with(keys, {{"dataset", "identity"}, {"val_size", "0.1"}})));
  EXPECT_EQ(more.eval_samples->counts().samples, 10);  // 9.1, rounded up
}

}  // namespace
}  // namespace megatrain
