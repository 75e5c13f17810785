#include "megatrain/config/config.h"
#include "megatrain/config/config_help.h"

#include <fmt/format.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/config/config_keys.h"
#include "tests/support/places.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

using Words = std::vector<std::string>;

const std::string kMinimal = "model.path: m\ndata.tokens: t\nsteps: 3\n";

// The message of the Error(bad_config) that parsing throws; "accepted" if it throws none.
std::string refusal(const std::string& text, const Words& words = {}) {
  return refused_with(ExitCode::bad_config, [&] { parse_config(text, "c.yaml", words); });
}

TEST(ConfigMemory, ABudgetOfNullIsRefused) {
  for (const char* key : {"gpu", "host", "nvme"})
    EXPECT_EQ(refusal(kMinimal + "memory: {" + key + ": null}\n"),
              fmt::format("c.yaml:4: memory.{} is null, expected auto or a size (24GiB, 512MB, 1048576)", key));
}

TEST(ConfigMemory, ABudgetWithoutItsUnitIsAskedAfter) {
  EXPECT_EQ(refusal(kMinimal + "memory: {gpu: 24}\n"), "c.yaml:4: memory.gpu: 24 is 24 bytes; did you mean 24GiB?");
  EXPECT_EQ(refusal(kMinimal + "memory: {gpu: 1048576, host: 0}\n"), "accepted");
}

TEST(ConfigProblems, ComeInOneListWithTheirRemedies) {
  const std::string values = refusal("model.path: m\nbtach: 4\noptim: {lr: fast, beta1: 2}\n");
  EXPECT_TRUE(
      values.starts_with("3 problems: (1) c.yaml:2: unknown key 'btach'; did you mean 'batch'?; (2) c.yaml:3: "
                         "optim.lr is 'fast'"))
      << values;
  EXPECT_NE(values.find("(3) c.yaml:3: optim.beta1 is '2'"), std::string::npos) << values;
  EXPECT_EQ(values.find("how long"), std::string::npos) << "it may stand under the wrong name: " << values;
  const std::string keys = refusal("data.tokens: t\noptim.min_lr: 2e-5\noptim.lr: 1e-5\nbatch: 3\nmicro_batch: 2\n");
  EXPECT_TRUE(keys.starts_with("2 problems: (1) c.yaml: no model")) << keys;
  EXPECT_NE(keys.find("(2) c.yaml: how long is the run?"), std::string::npos) << keys;
  const std::string sizes = refusal(kMinimal + "optim.min_lr: 2e-5\noptim.lr: 1e-5\nbatch: 3\nmicro_batch: 2\n");
  EXPECT_TRUE(sizes.starts_with("2 problems: (1) c.yaml:7: micro_batch is 2")) << sizes;
  EXPECT_NE(sizes.find("(2) c.yaml:4: optim.min_lr"), std::string::npos) << sizes;
  const std::string idle = refusal(kMinimal + "sample.prompts: Hello\nsample.max_tokens: 9\n");
  EXPECT_TRUE(idle.starts_with("2 problems: (1) c.yaml:4: sample.prompts has no effect")) << idle;
}

TEST(ConfigEvery, IsStepsAPartOfTheRunOrAnEpoch) {
  const auto every = [](const std::string& text) {
    return parse_config(kMinimal + "checkpoint.every: " + text + "\n", "c.yaml").checkpoint;
  };
  EXPECT_EQ(every("7").every, 7);
  EXPECT_EQ(every("7").every_part, 0);
  EXPECT_EQ(every("0.25").every_part, 0.25);
  EXPECT_EQ(every("epoch").every_part, 1);
  for (const char* bad : {"1.5", "-1", "-0.5", "null", "run", "[1]"})
    EXPECT_NE(refusal(kMinimal + "checkpoint.every: " + bad + "\n").find("a part of the run above 0 and below 1"),
              std::string::npos)
        << bad;
}

TEST(Config, ReadsEveryKindOfKeyFromNestedYaml) {
  const TrainConfig c = parse_config(R"(
model: {config: tiny/config.json}
seed: 18446744073709551615
device: cpu
precision: fp32
data:
  tokens: "a: b.bin"
  dtype: uint32
  documents: d.bin
seq_len: 128
batch: 8
micro_batch: 4
steps: 20
optim:
  lr: 1e-5
  beta2: 0.95
  clip: null
  schedule: cosine
  warmup: 3
memory: {gpu: 2GiB, host: auto}
checkpoint.every: 5
resume: yes
)",
                                     "c.yaml");
  EXPECT_EQ(c.model.config, "tiny/config.json");
  EXPECT_EQ(c.seed, 18446744073709551615ull);
  EXPECT_EQ(c.device, "cpu");
  EXPECT_EQ(c.precision, "fp32");
  EXPECT_EQ(c.data.tokens, "a: b.bin");
  EXPECT_EQ(c.data.dtype, "uint32");
  EXPECT_EQ(c.data.documents, "d.bin");
  EXPECT_EQ(c.seq_len, 128);
  EXPECT_EQ(c.batch, 8);
  EXPECT_EQ(c.micro_batch, 4);
  EXPECT_EQ(c.optim.lr, 1e-5);
  EXPECT_EQ(c.optim.beta2, 0.95);
  EXPECT_EQ(c.optim.clip, 0.0);
  EXPECT_EQ(c.optim.schedule, "cosine");
  EXPECT_EQ(c.optim.warmup, 3);
  EXPECT_EQ(c.memory.gpu_bytes, int64_t{2} << 30);
  EXPECT_FALSE(c.memory.host_bytes.has_value());
  EXPECT_EQ(c.checkpoint.every, 5);
  EXPECT_TRUE(c.resume);
}

TEST(Config, AMicroBatchNobodyNamedDividesTheBatchAndHoldsAtMost8192Tokens) {
  const auto chosen = [](const std::string& sizes) { return parse_config(kMinimal + sizes, "c.yaml").micro_batch; };
  EXPECT_EQ(chosen("batch: 32\nseq_len: 1024\n"), 8);
  EXPECT_EQ(chosen("batch: 30\nseq_len: 1024\n"), 6);
  EXPECT_EQ(chosen("batch: 6\nseq_len: 12\n"), 6);
  EXPECT_EQ(chosen("batch: 4\nseq_len: 32768\n"), 1);
}

TEST(Config, AdaptersHaveALearningRateOfTheirOwnUnlessOneIsGiven) {
  const auto rate = [](const std::string& keys) { return parse_config(kMinimal + keys, "c.yaml").optim.lr; };
  EXPECT_EQ(rate("adapter: {rank: 4}\n"), 1e-4);
  EXPECT_EQ(rate("adapter: {targets: q_proj}\n"), 1e-4);  // of rank 8
  EXPECT_EQ(rate("adapter: {rank: 4}\noptim: {lr: 1e-5}\n"), 1e-5);
  EXPECT_EQ(rate("adapter: {rank: 0}\n"), 1e-5);
}

TEST(Config, HasTheDocumentedDefaults) {
  const TrainConfig c = parse_config(kMinimal, "c.yaml");
  EXPECT_EQ(c.seed, 0u);
  EXPECT_EQ(c.device, "auto");
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_EQ(c.optim.lr, 1e-5);
  EXPECT_EQ(c.optim.weight_decay, 0.01);
  EXPECT_EQ(c.optim.clip, 1.0);
  EXPECT_EQ(c.optim.schedule, "constant");
  EXPECT_EQ(c.micro_batch, 1);
  EXPECT_EQ(c.run_dir, "runs/default");
  EXPECT_TRUE(c.dump.grads.empty());
}

TEST(Config, OverridesComeAfterTheFileAndTheLastOneWins) {
  const TrainConfig c = parse_config(kMinimal, "c.yaml",
                                     {"--optim.lr=0.5", "--optim.lr", "2e-3", "--resume", "--steps", "7",
                                      "--data.tokens=x=y: z", "--optim.clip=null"});
  EXPECT_EQ(c.optim.lr, 2e-3);
  EXPECT_EQ(c.steps, 7);
  EXPECT_TRUE(c.resume);
  EXPECT_EQ(c.data.tokens, "x=y: z");
  EXPECT_EQ(c.optim.clip, 0.0);
}

TEST(Config, AFlagAloneMayBeFollowedByItsValueOrAnotherKey) {
  EXPECT_FALSE(parse_config(kMinimal, "c.yaml", {"--resume", "false"}).resume);
  EXPECT_TRUE(parse_config(kMinimal, "c.yaml", {"--resume", "--steps=4"}).resume);
  EXPECT_TRUE(parse_config(kMinimal, "c.yaml", {"--dump.grads"}).dump.grads.all);
}

TEST(Config, UnknownKeyNamesItsLineAndTheNearestKey) {
  EXPECT_EQ(refusal("model.path: m\noptim:\n  learning_rat: 1e-5\n"),
            "c.yaml:3: unknown key 'optim.learning_rat'; did you mean 'optim.lr'?");
  EXPECT_EQ(refusal("setps: 3\n"), "c.yaml:1: unknown key 'setps'; did you mean 'steps'?");
  EXPECT_EQ(refusal("\n\nlr: 3\n"), "c.yaml:3: unknown key 'lr'; did you mean 'optim.lr'?");
  EXPECT_EQ(refusal("optimizer: {lr: 3}\n"), "c.yaml:1: unknown key 'optimizer'; did you mean 'optim'?");
  EXPECT_EQ(refusal("batch_size: 3\n"), "c.yaml:1: unknown key 'batch_size'; did you mean 'batch'?");
  EXPECT_EQ(refusal(kMinimal, {"--optim.beta3=1"}),
            "--optim.beta3: unknown key 'optim.beta3'; did you mean 'optim.beta1'?");
}

TEST(Config, ABudgetOfDiskNeedsADirectoryAndWhatAnEarlierVersionWroteIsRead) {
  const std::string said = "memory.nvme needs memory.nvme_path, a directory on an NVMe drive";
  EXPECT_EQ(refusal(kMinimal, {"--memory.nvme=100GiB"}), "--memory.nvme: " + said);
  EXPECT_EQ(refusal(kMinimal, {"--memory.nvme_force"}),
            "--memory.nvme_force: memory.nvme_force needs memory.nvme_path");
  const TrainConfig c = parse_config(kMinimal + "memory:\n  nvme: 100GiB\n  nvme_path: /scratch\n", "c.yaml");
  EXPECT_EQ(c.memory.nvme_bytes, int64_t{100} << 30);
  EXPECT_EQ(c.memory.nvme_path, "/scratch");
  EXPECT_FALSE(parse_config(kMinimal, "c.yaml", {"--memory.nvme_path=/scratch"}).memory.nvme_bytes.has_value());
  EXPECT_EQ(parse_config(kMinimal + "memory:\n  nvme: auto\n", "config.resolved.yaml"),
            parse_config(kMinimal, "c.yaml"));
}

TEST(Config, ABaseInFilesNeedsFiles) {
  const std::string random = "model.config: c.json\ndata.tokens: t\nsteps: 3\nadapter.rank: 8\n";
  EXPECT_EQ(refusal(random + "memory.base: files\n"),
            "c.yaml:5: memory.base is files, but model.config starts from random weights, which have no files; leave "
            "memory.base out");
  for (const char* base : {"auto", "host"}) {
    EXPECT_EQ(parse_config(random + "memory.base: " + base + "\n", "c.yaml").memory.base, base);
  }
  const TrainConfig files = parse_config(kMinimal + "adapter.rank: 8\nmemory.base: files\n", "c.yaml");
  EXPECT_EQ(files.memory.base, "files");
  EXPECT_EQ(parse_config(resolved_yaml(files), "resolved"), files);
}

TEST(Config, DuplicateKeysAreRefusedWithBothLines) {
  EXPECT_EQ(refusal("steps: 3\nbatch: 2\nsteps: 4\n"),
            "c.yaml:3: key 'steps' is given twice (first on line 1); keep one");
  EXPECT_EQ(refusal("optim: {lr: 1}\nbatch: 2\noptim: {clip: 1}\n"),
            "c.yaml:3: key 'optim' is given twice (first on line 1); keep one");
  EXPECT_EQ(refusal("optim:\n  lr: 1\noptim.lr: 2\n"),
            "c.yaml:3: key 'optim.lr' is given twice (first on line 2); keep one");
}

TEST(Config, WrongTypesAndRangesSayWhatIsAccepted) {
  const auto bad = [](const std::string& line) { return refusal("model.path: m\ndata.tokens: t\n" + line + "\n"); };
  EXPECT_EQ(bad("steps: -1"), "c.yaml:3: steps is '-1', expected a whole number from 0 to 1000000000, or null");
  EXPECT_EQ(bad("steps: many"), "c.yaml:3: steps is 'many', expected a whole number from 0 to 1000000000, or null");
  EXPECT_EQ(bad("steps: 1.5"), "c.yaml:3: steps is '1.5', expected a whole number from 0 to 1000000000, or null");
  EXPECT_EQ(bad("steps:"), "c.yaml: how long is the run? Give steps, epochs or tokens");
  EXPECT_EQ(bad("steps: [1]"), "c.yaml:3: steps is a list, expected a whole number from 0 to 1000000000, or null");
  EXPECT_EQ(bad("steps: {a: 1}"),
            "c.yaml:3: steps is a section, expected a whole number from 0 to 1000000000, or null");
  EXPECT_EQ(bad("optim.lr: nan"), "c.yaml:3: optim.lr is 'nan', expected a number from 0 to 1000");
  EXPECT_EQ(bad("optim.lr: .nan"), "c.yaml:3: optim.lr is '.nan', expected a number from 0 to 1000");
  EXPECT_EQ(bad("optim.lr: inf"), "c.yaml:3: optim.lr is 'inf', expected a number from 0 to 1000");
  EXPECT_EQ(bad("optim.lr: -1e-5"), "c.yaml:3: optim.lr is '-1e-5', expected a number from 0 to 1000");
  EXPECT_EQ(bad("optim.beta1: 1"), "c.yaml:3: optim.beta1 is '1', expected a number from 0 to below 1");
  EXPECT_EQ(bad("moe.aux_loss: -0.1"),
            "c.yaml:3: moe.aux_loss is '-0.1', expected auto, model or a number from 0 to 1000");
  EXPECT_EQ(bad("moe.aux_loss: nan"),
            "c.yaml:3: moe.aux_loss is 'nan', expected auto, model or a number from 0 to 1000");
  EXPECT_EQ(bad("moe.z_loss: some"), "c.yaml:3: moe.z_loss is 'some', expected a number from 0 to 1000");
  EXPECT_EQ(bad("device: tpu"), "c.yaml:3: device is 'tpu', expected auto or cpu or cuda");
  EXPECT_EQ(bad("resume: maybe"), "c.yaml:3: resume is 'maybe', expected true or false");
  EXPECT_EQ(bad("seed: -1"), "c.yaml:3: seed is '-1', expected a whole number from 0 to 18446744073709551615");
  EXPECT_NE(bad("memory.gpu: plenty").find("c.yaml:3: memory.gpu is 'plenty', expected auto or a size"),
            std::string::npos);
  EXPECT_EQ(bad("data: 5"), "c.yaml:3: 'data' is a section of keys, expected keys such as 'data.tokens' in it");
  EXPECT_EQ(refusal(kMinimal, {"--steps=x"}),
            "--steps: steps is 'x', expected a whole number from 0 to 1000000000, or null");
  EXPECT_EQ(refusal(kMinimal, {"--steps"}),
            "--steps needs a value: expected a whole number from 0 to 1000000000, or null");
  EXPECT_EQ(refusal(kMinimal, {"steps=3"}), "'steps=3' on the command line is not understood, expected --key=value");
}

TEST(Config, KeysThatContradictEachOtherAreRefused) {
  EXPECT_NE(refusal("model: {path: a,\n config: b}\ndata.tokens: t\nsteps: 1\n")
                .find("c.yaml:2: both model.path and model.config"),
            std::string::npos);
  EXPECT_NE(refusal("data.tokens: t\nsteps: 1\n").find("no model; give model.path"), std::string::npos);
  EXPECT_NE(refusal("model.path: m\nsteps: 1\n").find("no data; give datasets as data.train, or a file"),
            std::string::npos);
  EXPECT_NE(refusal("model.path: m\ndata.tokens: t\n").find("Give steps, epochs or tokens"), std::string::npos);
  EXPECT_EQ(refusal(kMinimal + "batch: 4\nmicro_batch: 3\n"),
            "c.yaml:5: micro_batch is 3, expected a divisor of batch, which is 4");
  EXPECT_EQ(refusal(kMinimal + "batch: 4\n", {"--micro_batch=8"}),
            "--micro_batch: micro_batch is 8, expected a divisor of batch, which is 4");
  EXPECT_EQ(refusal(kMinimal + "optim: {min_lr: 1e-3}\n"),
            "c.yaml:4: optim.min_lr is 0.001, expected at most optim.lr, which is 1e-05");
  EXPECT_EQ(refusal(kMinimal + "optim: {warmup: 1.5}\n"),
            "c.yaml:4: optim.warmup is 1.5, expected a whole number of steps, or a fraction of the run below 1");
  EXPECT_EQ(refusal(kMinimal + "seq_len: 2147483647\nbatch: 2\nmicro_batch: 2\n"),
            "c.yaml:4: seq_len is '2147483647', expected a whole number from 2 to 2097152");
  EXPECT_EQ(refusal("model.path: m\nsteps: 0\ndata.order: o\n"), "c.yaml:3: data.order is given without data.tokens");
}

TEST(Config, ZeroStepsNeedNoData) { EXPECT_EQ(parse_config("model.path: m\nsteps: 0\n", "c.yaml").steps, 0); }

TEST(Config, AVerbMayNeedLessThanTraining) {
  const TrainConfig c = parse_config("", "none", {"--batch=4"}, {.model = false, .data = false, .steps = false});
  EXPECT_EQ(c.batch, 4);
}

TEST(Config, BrokenYamlIsRefusedWithItsLine) {
  EXPECT_EQ(refusal("steps: 1\nbatch: [1, 2\n").rfind("c.yaml:", 0), 0u);
  EXPECT_NE(refusal("steps: 1\n  batch: 3\n").find("c.yaml:2: not valid YAML"), std::string::npos);
  EXPECT_NE(refusal("- a\n- b\n").find("expected 'key: value' lines"), std::string::npos);
  EXPECT_NE(refusal("steps: 1\n---\nsteps: 2\n").find("expected one YAML document"), std::string::npos);
  EXPECT_NE(refusal(",steps: 1\n").find("expected one YAML document"), std::string::npos);
  EXPECT_NE(refusal("steps: *nowhere\n").find("not valid YAML"), std::string::npos);
  EXPECT_NE(refusal("? [a, b]\n: 1\n").find("expected a plain key name"), std::string::npos);
  EXPECT_NE(refusal("").find("no model"), std::string::npos);
}

TEST(Config, AliasesThatNeverEndOrExpandToTooMuchAreRefusedWithTheirLine) {
  EXPECT_EQ(refusal("model.path: m\nsteps: 1\ndata:\n  train:\n  - &a {path: x, columns: *a}\n"),
            "c.yaml:5: this alias refers to a value that contains it; write the value out");
  std::string bomb = "model.path: m\nsteps: 1\ndata:\n  train:\n  - &l0 {path: x}\n";
  for (int line = 1; line < 30; ++line) {
    bomb += fmt::format("  - &l{} {{path: x, columns: {{a: *l{}, b: *l{}}}}}\n", line, line - 1, line - 1);
  }
  EXPECT_NE(refusal(bomb).find("values, with every alias expanded"), std::string::npos);
}

TEST(Config, DumpStepsAcceptEveryForm) {
  const auto read = [](const std::string& steps) {
    return format_steps(
        parse_config("model.path: m\ndata.tokens: t\nsteps: 20\ndump:\n  steps: " + steps + "\n", "c").dump.steps);
  };
  EXPECT_EQ(read("3"), "3");
  EXPECT_EQ(read("[1, 5]"), "1,5");
  EXPECT_EQ(read("\"1,5\""), "1,5");
  EXPECT_EQ(read("1,5"), "1,5");
  EXPECT_EQ(read("2-4"), "2-4");
  EXPECT_EQ(read("[7, 2-4, 3, 5]"), "2-5,7");
  EXPECT_EQ(read("all"), "all");
  EXPECT_EQ(read("[]"), "none");
  EXPECT_EQ(format_steps(parse_config(kMinimal, "c", {"--dump.steps=[1, 2]"}).dump.steps), "1-2");
  for (const char* text : {"", "4-2", "-1", "1,,2", "1,", "a", "1-", "[1", "1.5"})
    EXPECT_THROW(parse_steps(text), std::invalid_argument) << text;
}

TEST(Config, DumpStepsAreWhatTrueMeansForGradsAndState) {
  const auto dump = [](const Words& words) {
    return parse_config("model.path: m\ndata.tokens: t\nsteps: 9\n", "c", words).dump;
  };
  EXPECT_EQ(format_steps(dump({"--dump.steps=1,5", "--dump.grads=true"}).grads), "1,5");
  EXPECT_EQ(format_steps(dump({"--dump.steps=1,5", "--dump.grads=true"}).state), "none");
  EXPECT_EQ(format_steps(dump({"--dump.steps=1,5"}).grads), "1,5");
  EXPECT_EQ(format_steps(dump({"--dump.steps=1,5"}).state), "1,5");
  EXPECT_EQ(format_steps(dump({"--dump.grads=true"}).grads), "all");
  EXPECT_EQ(format_steps(dump({"--dump.state=0,9"}).state), "0,9");
  EXPECT_EQ(format_steps(dump({"--dump.steps=0-2"}).grads), "1-2");
  EXPECT_EQ(format_steps(dump({"--dump.steps=0-2"}).state), "0-2");
  EXPECT_EQ(refusal(kMinimal, {"--dump.grads=0"}),
            "--dump.grads: dump.grads names step 0, but gradients exist from step 1 on");
  EXPECT_EQ(refusal(kMinimal, {"--dump.steps=9"}), "--dump.steps: dump.steps names step 9, but the run has 3 steps");
}

TEST(Config, PatternsAreAListOrJoinedByCommas) {
  const auto freeze = [](const std::string& value) {
    return parse_config(kMinimal + "freeze: " + value, "c.yaml").freeze;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(freeze("[model.embed_tokens.*, \"model.layers.[0-9].*\"]"),
            (List{"model.embed_tokens.*", "model.layers.[0-9].*"}));
  EXPECT_EQ(freeze("\n  - a.?\n  - b.*\n"), (List{"a.?", "b.*"}));
  EXPECT_EQ(freeze("'a.*, b'"), (List{"a.*", "b"}));
  for (const char* none : {"", "null", "none", "[]"}) EXPECT_EQ(freeze(none), List{}) << none;
  EXPECT_NE(refusal(kMinimal + "freeze: 'a,,b'\n").find("list of patterns"), std::string::npos);
  EXPECT_NE(refusal(kMinimal + "freeze: [[a]]\n").find("plain values"), std::string::npos);
  const TrainConfig c = parse_config(kMinimal, "c.yaml", {"--freeze=a.*,b", "--train_only=c"});
  EXPECT_EQ(parse_config(resolved_yaml(c), "r.yaml"), c);
  EXPECT_EQ(c.train_only, List{"c"});
}

TEST(Config, AStepSetContainsItsRangesAndAllStartsAtOne) {
  EXPECT_FALSE(parse_steps("all").contains(0));
  EXPECT_TRUE(parse_steps("all").contains(1'000'000));
  const StepSet some = parse_steps("0,4-6");
  for (int64_t step : {0, 4, 5, 6}) EXPECT_TRUE(some.contains(step));
  for (int64_t step : {1, 3, 7}) EXPECT_FALSE(some.contains(step));
}

TEST(Config, ResolvedYamlReadsBackToTheSameConfig) {
  const TrainConfig plain = parse_config(kMinimal, "c.yaml");
  EXPECT_EQ(parse_config(resolved_yaml(plain), "resolved"), plain);
  const TrainConfig full = parse_config("model.config: \"odd \\\"name\\\": \\\\ #1 \\t.json\"\n", "c.yaml",
                                        {"--seed=18446744073709551615",
                                         "--device=cuda",
                                         "--precision=fp32",
                                         "--data.tokens=null.bin",
                                         "--data.dtype=uint32",
                                         "--data.documents=true",
                                         "--data.labels=~x",
                                         "--data.order=[a, b]",
                                         "--seq_len=77",
                                         "--batch=6",
                                         "--micro_batch=3",
                                         "--steps=11",
                                         "--conventions=transformers",
                                         "--head_chunk=5",
                                         "--mlp_chunk=9",
                                         "--freeze=*.[ab]?, c",
                                         "--train_only=d.*",
                                         "--optim.lr=0.1",
                                         "--optim.beta1=0.123456789012345",
                                         "--optim.beta2=0.3",
                                         "--optim.eps=1e-3",
                                         "--optim.weight_decay=0.7",
                                         "--optim.clip=0",
                                         "--optim.schedule=wsd",
                                         "--optim.warmup=2",
                                         "--optim.min_lr=1e-9",
                                         "--optim.decay=0.25",
                                         "--moe.aux_loss=0.125",
                                         "--moe.z_loss=1e-4",
                                         "--state.moments=int8",
                                         "--memory.gpu=3GiB",
                                         "--memory.host=1.5TiB",
                                         "--memory.state=host",
                                         "--threads=3",
                                         "--plan=p.json",
                                         "--dump.steps=0,2-4",
                                         "--dump.grads=true",
                                         "--dump.state=7",
                                         "--trace=5-6",
                                         "--run_dir=runs/x",
                                         "--checkpoint.every=4",
                                         "--checkpoint.keep=9",
                                         "--resume"});
  EXPECT_EQ(parse_config(resolved_yaml(full), "resolved"), full);
  EXPECT_NE(full, plain);

  // keys that conflict with those above
  const TrainConfig sets = parse_config("model.path: m\n", "c.yaml",
                                        {"--data.train=a.jsonl,b.jsonl",
                                         "--data.eval=c.jsonl",
                                         "--data.info=folder",
                                         "--data.tokenizer=t",
                                         "--data.template=t.jinja",
                                         "--data.train_on=last",
                                         "--data.overlong=drop",
                                         "--data.packing=false",
                                         "--data.shuffle=false",
                                         "--data.skip_bad=3",
                                         "--data.max_samples=9",
                                         "--data.cache=k",
                                         "--epochs=2.5",
                                         "--eval.every=5",
                                         "--eval.patience=2",
                                         "--eval.keep_best",
                                         "--sample.every=7",
                                         "--sample.prompts=Who?",
                                         "--sample.max_tokens=16",
                                         "--state.master=stochastic",
                                         "--freeze=model.embed_tokens.*",
                                         "--memory.nvme=50GiB",
                                         "--memory.nvme_path=/scratch",
                                         "--memory.nvme_force"});
  EXPECT_EQ(parse_config(resolved_yaml(sets), "resolved"), sets);
  const TrainConfig split =
      parse_config("model.path: m\n", "c.yaml",
                   {"--data.train=a.jsonl", "--data.eval_split=0.25", "--tokens=1000000", "--train_only=lm_head.*",
                    "--optim.warmup=0.1", "--optim.warmup_most=9", "--eval.every=epoch", "--checkpoint.every=0.125",
                    "--guard=stop", "--track.to=wandb", "--track.project=p", "--track.name=n"});
  EXPECT_EQ(parse_config(resolved_yaml(split), "resolved"), split);
  const TrainConfig adapted = parse_config(
      "model.path: m\ndata.train: a.jsonl\nsteps: 1\n", "c.yaml",
      {"--adapter.rank=4", "--adapter.alpha=6.5", "--adapter.dropout=0.25",
       "--adapter.targets=.*layers\\.[0-3]\\..*(q|v)_proj", "--adapter.target_parameters=mlp.experts.down_proj",
       "--adapter.exclude=k_proj,mlp.up_proj", "--adapter.rslora", "--adapter.dora", "--adapter.bias=lora_only",
       "--adapter.init=gaussian", "--adapter.rank_pattern={v_proj: 2}",
       "--adapter.alpha_pattern={'layers\\.1\\..*': 0.5}", "--adapter.also_train=lm_head,norm", "--memory.base=host",
       "--adapter.trainable_token_indices={embed_tokens: [7, 3], model.lm_head: 9}"});
  EXPECT_EQ(parse_config(resolved_yaml(adapted), "resolved"), adapted);
  for (const ConfigKey& key : config_keys()) {
    const std::string usual = key.write(TrainConfig{});
    if (key.name == "model.adapter") continue;  // names a directory that is read
    EXPECT_TRUE(key.write(full) != usual || key.write(sets) != usual || key.write(split) != usual ||
                key.write(adapted) != usual)
        << key.name << " is not exercised here";
  }
}

// Without the check no other key would ask for adapters, and all weights would be trained.
TEST(Config, NoTargetsOfAdaptersAreRefusedUnlessParametersAreTargets) {
  const std::string rest = "model.path: m\ndata.train: a.jsonl\nsteps: 1\n";
  for (const char* none :
       {"adapter.targets: null\n", "adapter: {rank: 8, targets: null}\n", "adapter: {dropout: 0.1, targets: null}\n"}) {
    const std::string said = refusal(rest + none);
    EXPECT_NE(said.find("names no module; give names or all-linear"), std::string::npos) << none << said;
  }
  const TrainConfig experts =
      parse_config(rest + "adapter: {targets: null, target_parameters: [mlp.experts.down_proj]}\n", "c.yaml");
  EXPECT_EQ(experts.adapter.rank, 8);
  EXPECT_TRUE(experts.adapter.targets.empty());
  EXPECT_EQ(parse_config(rest + "adapter: {rank: 0, targets: null}\n", "c.yaml").adapter.rank, 0) << "switched off";
}

TEST(Config, RowsOfTokensAreIdsOrAListForEachModule) {
  using Tokens = decltype(TrainConfig::Adapter::trainable_token_indices);
  const std::string rest = "model.path: m\ndata.train: a.jsonl\nsteps: 1\n";
  const auto read = [&](const std::string& value) {
    return parse_config(rest + "adapter.trainable_token_indices: " + value + "\n", "c.yaml").adapter;
  };
  for (const std::string value : {"[7, 3]", "7, 3", "{embed_tokens: [7, 3]}"}) {
    EXPECT_EQ(read(value).trainable_token_indices, (Tokens{{"embed_tokens", {7, 3}}})) << value;
    EXPECT_EQ(read(value).rank, 8) << "another key of adapter asks for adapters";
  }
  EXPECT_EQ(read("{embed_tokens: [7], lm_head: [9, 2]}").trainable_token_indices,
            (Tokens{{"embed_tokens", {7}}, {"lm_head", {9, 2}}}));
  EXPECT_EQ(read("null").trainable_token_indices, Tokens{});
  for (const std::string value : {"[-1]", "[a]", "[1.5]", "{embed_tokens: []}", "{embed_tokens: [[1]]}", "''"}) {
    const std::string said = refusal(rest + "adapter.trainable_token_indices: " + value + "\n");
    EXPECT_NE(said.find("expected null, ids of tokens"), std::string::npos) << value << ": " << said;
  }
}

TEST(Config, AMistakeInADatasetIsNamedWithItsEntryKeyAndValue) {
  const auto said = [](const std::string& entry) {
    return refusal("model.path: m\nsteps: 1\ndata.train: [a.jsonl, {path: b.jsonl, " + entry + "}]\n");
  };
  const std::string begin = "c.yaml:3: data.train: entry 2 (b.jsonl): ";
  EXPECT_EQ(said("mots: 5"), begin + "unknown key 'mots'; did you mean 'most'?");
  EXPECT_EQ(said("file: x"),
            begin + "unknown key 'file', expected path, format, weight, most, subset, split, columns.* or tags.*");
  EXPECT_EQ(said("most: 0").find(begin + "most is '0', expected a whole number of samples from 1"), 0u);
  EXPECT_EQ(said("most: 150%").find(begin + "most is '150%', expected"), 0u);
  EXPECT_EQ(said("weight: 0").find(begin + "weight is '0', expected a number above 0"), 0u);
  EXPECT_EQ(said("format: chatml").find(begin + "format is 'chatml', expected auto, messages, sharegpt"), 0u);
  EXPECT_EQ(said("columns: {msgs: x}").find(begin + "unknown key 'columns.msgs', expected columns.messages,"), 0u);
}

TEST(Config, AListOnTheCommandLineIsYamlAndWhatOnlyBeginsLikeOneIsPlain) {
  const std::string base = "model.path: m\nsteps: 1\n";
  const auto train = [&](const std::string& word) { return parse_config(base, "c.yaml", {word}).data.train; };
  const auto both = train("--data.train=[{path: x.jsonl, most: 10%}, y.jsonl]");
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].most_percent, 10);
  EXPECT_EQ(both[1].path, "y.jsonl");
  EXPECT_EQ(train("--data.train={path: x.jsonl, weight: 2}")[0].weight, 2);
  EXPECT_EQ(refusal(base, {"--data.train=[{path: x.jsonl, mots: 1}]"}).find("--data.train: data.train: entry 1"), 0u);
  EXPECT_EQ(refusal(base, {"--data.train=[{path: ]"}).find("--data.train:1: not valid YAML"), 0u);
  const auto prompts = [&](const std::string& text) {
    return parse_config(base + "data.train: a\nsample.every: 1\n", "c.yaml", {"--sample.prompts=" + text})
        .sample.prompts;
  };
  EXPECT_EQ(prompts(R"(["a", "b, c"])"), (Words{"a", "b, c"}));
  for (const char* plain : {"[INST] Who? [/INST]", "{name}", "a, b", "[x", "[a], [b]"})
    EXPECT_EQ(prompts(plain), Words{plain});
  const auto frozen = [&](const std::string& text) {
    return parse_config(base + "data.train: a\n", "c.yaml", {"--freeze=" + text}).freeze;
  };
  EXPECT_EQ(frozen("[lm_head.*, model.embed_tokens.*]"), (Words{"lm_head.*", "model.embed_tokens.*"}));
  EXPECT_EQ(frozen("[a-m]*.weight"), Words{"[a-m]*.weight"});
}

TEST(Config, LoadsAFileAndNamesItInErrors) {
  const std::string path = testing::TempDir() + "/config_test.yaml";
  std::ofstream(path) << kMinimal;
  EXPECT_EQ(load_config(path, {"--steps=4"}).steps, 4);
  std::ofstream(path) << kMinimal << "nonsense: 1\n";
  try {
    load_config(path);
    FAIL() << "an unknown key was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).rfind(path + ":4: unknown key 'nonsense'", 0), 0u) << e.what();
  }
  std::filesystem::remove(path);
  for (const std::string& missing : {path, testing::TempDir()}) {
    try {
      load_config(missing);
      FAIL() << "read " << missing;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::bad_config);
    }
  }
}

TEST(Config, EveryExampleIsRead) {
  const std::filesystem::path examples = std::filesystem::path(in_repository("examples"));
  int read = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(examples)) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_NO_THROW(load_config(entry.path().string())) << entry.path();
    ++read;
  }
  EXPECT_GE(read, 4);
}

TEST(Config, MutatedTextIsReadOrRefusedAsConfigAndNothingElse) {
  std::string text = resolved_yaml(parse_config(kMinimal, "c.yaml"));
  const std::string adapter = "  adapter: null\n";  // model.adapter: a directory that is read
  ASSERT_NE(text.find(adapter), std::string::npos);
  text.erase(text.find(adapter), adapter.size());
  const std::string alphabet = "{}[]:,&*!|>'\"%@`#-?~ \n\t\\0a.<\xff";
  int refused = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string mutated = text;
    for (uint64_t edit = 0; edit < 1 + round % 4; ++edit) {
      const uint64_t bits = random_bits(1, round, edit);
      const size_t place = bits % mutated.size();
      const char letter = alphabet[(bits >> 32) % alphabet.size()];
      if ((bits >> 60) % 2 == 0)
        mutated[place] = letter;
      else
        mutated.insert(place, 1, letter);
    }
    refused += refusal(mutated) != "accepted";  // any other exception ends the test
  }
  EXPECT_GT(refused, 1000);
}

TEST(Config, EveryKeyIsNamedOnceIsInTheHelpAndIsAnOverride) {
  std::set<std::string> names;
  const std::string help = config_help();
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_TRUE(help.find("\n  " + key.name + " ") != std::string::npos ||
                help.find("\n  " + key.name + "\n") != std::string::npos)
        << key.name;
    EXPECT_TRUE(config_help(key.name).starts_with("  " + key.name + "\n")) << key.name;
    EXPECT_TRUE(is_config_override("--" + key.name + "=1")) << key.name;
    EXPECT_EQ(nearest_config_key(key.name + "x"), key.name);
  }
  EXPECT_FALSE(is_config_override("--json"));
  EXPECT_FALSE(is_config_override("steps"));
}

TEST(Config, RefusesWhatTakesMinutesToPlanByName) {
  EXPECT_EQ(refusal(kMinimal + "seq_len: 2097152\n"), "accepted");
  EXPECT_NE(
      refusal(kMinimal + "seq_len: 2098176\n").find("seq_len is '2098176', expected a whole number from 2 to 2097152"),
      std::string::npos);
  EXPECT_EQ(refusal(kMinimal + "batch: 65536\n"), "accepted");
  EXPECT_NE(refusal(kMinimal + "batch: 65537\n").find("batch is '65537', expected a whole number from 1 to 65536"),
            std::string::npos);
  EXPECT_NE(refusal(kMinimal + "seq_len: 1048576\nbatch: 32\nmicro_batch: 32\n").find("past 2^24 tokens"),
            std::string::npos);
  for (const char* key : {"mlp_chunk", "head_chunk"})
    EXPECT_NE(refusal(kMinimal + "seq_len: 65536\n" + key + ": 8\n").find(std::string(key) + " is 8, which cuts"),
              std::string::npos);
}

}  // namespace
}  // namespace megatrain
