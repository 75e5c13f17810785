// Whole runs on datasets.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/run/run.h"
#include "megatrain/train/model_loss.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"
#include "tests/run/dataset_run.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

using Gradients = std::map<std::string, std::vector<float>>;

class DatasetGradients : public DatasetRun {
 protected:
  // The gradients of one step that contains all samples.
  Gradients gradients(const std::string& name, bool packing, int64_t batch, int64_t micro_batch) {
    TrainConfig config = run_config(name);
    config.data.packing = packing;
    config.batch = batch;
    config.micro_batch = micro_batch;
    config.steps = 1;
    config.dump.grads = parse_steps("1");
    run_training(config, {});
    Gradients all;
    const ModelFiles file(at(name) + "/grads-1.safetensors");
    for (const StoredTensor* tensor : file.tensors()) {
      std::vector<float>& values = all[tensor->name];
      values.resize(static_cast<size_t>(tensor->bytes / 4));
      widen_to_f32(tensor->data, DType::f32, static_cast<int64_t>(values.size()), values.data());
    }
    return all;
  }
};

void expect_near(const Gradients& a, const Gradients& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      error += std::pow(static_cast<double>(values[i]) - b.at(name)[i], 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(error / norm), 1e-6) << what << ": " << name;
  }
}

TEST_F(DatasetRun, WarnsOnceADatasetWhenNothingThatEndsTheLastAnswerIsTrained) {
  TrainConfig config = run_config("run");
  write("data.jsonl", conversations(3));
  write("bare.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  const auto said = [&] { return logged_by([&] { open_data(config, model_source(), nullptr); }); };
  const std::string sentence = "the end of the last answer is not trained";
  config.steps = 1;
  EXPECT_EQ(said().find(sentence), std::string::npos);
  config.data.chat_template = at("bare.jinja");
  for (int again = 0; again < 2; ++again) {  // tokenised, then from the cache
    const std::string log = said();
    const size_t at = log.find(sentence);
    ASSERT_NE(at, std::string::npos) << log;
    EXPECT_NE(log.find("in 3 of 3 samples"), std::string::npos) << log;
    EXPECT_EQ(log.find(sentence, at + 1), std::string::npos) << log;
  }
}

TEST_F(DatasetGradients, PackedPaddedAndOneByOneGiveTheSameGradient) {
  write("data.jsonl", conversations(8));
  RunData data = open_data(run_config("none"), model_source());
  const int64_t sequences = data.train_samples->counts().sequences;
  ASSERT_LT(sequences, 6);
  const Gradients packed = gradients("packed", true, sequences, sequences);
  const Gradients padded = gradients("padded", false, 8, 8);
  const Gradients single = gradients("single", false, 8, 1);
  expect_near(packed, padded, "packed and padded");
  expect_near(packed, single, "packed and one by one");
  expect_near(padded, single, "8x1 and 1x8");
}

TEST_F(DatasetRun, StepsPastTheEndAreRefusedWhereEpochsSayWhereThatIs) {
  write("data.jsonl", conversations(8));
  TrainConfig config = run_config("past");
  config.epochs = 1;
  const int64_t steps = open_data(config, model_source()).train->steps();
  for (StepSet* set : {&config.trace, &config.dump.grads, &config.dump.state}) {
    set->ranges = {{steps, steps + 1}};
    const std::string said = refused_with(ExitCode::bad_config, [&] { run_training(config, {}); });
    EXPECT_NE(said.find(fmt::format("names step {}, but the run has", steps + 1)), std::string::npos) << said;
    *set = {};
  }
}

TEST_F(DatasetRun, CheckpointsAndEvaluationsMayBePartsOfTheRunOrEpochs) {
  write("data.jsonl", conversations(20));
  TrainConfig config = run_config("parts");
  config.epochs = 2;
  config.data.packing = false;
  config.data.eval_split = 4;
  config.conventions = "axolotl";
  config.checkpoint.every_part = 1;
  config.checkpoint.keep = 10;
  config.eval.every_part = 0.3;
  const RunResult result = run_training(config, {});
  const int64_t epoch = (16 + config.batch - 1) / config.batch;
  EXPECT_EQ(result.step, 2 * epoch);
  EXPECT_TRUE(std::filesystem::exists(at(fmt::format("parts/checkpoints/step-{:08}", epoch))));
  std::istringstream lines(read_text_file(at("parts/eval.jsonl"), 1 << 20));
  std::vector<int64_t> when;
  for (std::string line; std::getline(lines, line);) when.push_back(nlohmann::json::parse(line).at("step"));
  const int64_t every = static_cast<int64_t>(std::ceil(0.3 * static_cast<double>(result.step)));
  ASSERT_GE(when.size(), 3u);
  EXPECT_EQ(when[0], every);
  EXPECT_EQ(when[1], 2 * every);
}

TEST_F(DatasetRun, UnderTheConventionsOfOtherTrainersTheLastStepIsSavedWhereStepsAre) {
  write("data.jsonl", conversations(20));
  const auto saves = [&](const std::string& conventions, int64_t every) {
    TrainConfig config = run_config("last");
    config.steps = 3;
    config.conventions = conventions;
    config.checkpoint.every = every;
    run_training(config, {});
    const bool last = std::filesystem::exists(at("last/checkpoints/step-00000003"));
    std::filesystem::remove_all(at("last"));
    return last;
  };
  EXPECT_TRUE(saves("transformers", 2));
  EXPECT_TRUE(saves("axolotl", 500));
  EXPECT_FALSE(saves("transformers", 0));
  EXPECT_FALSE(saves("megatrain", 2));
}

TEST_F(DatasetRun, AnEpochThatTheRunsEndCutsShortIsSaved) {
  write("data.jsonl", conversations(20));
  TrainConfig config = run_config("short");
  config.steps = 2;
  config.data.packing = false;
  config.checkpoint.every_part = 1;
  run_training(config, {});
  ASSERT_GT((20 + config.batch - 1) / config.batch, config.steps) << "an epoch is longer";
  EXPECT_TRUE(std::filesystem::exists(at("short/checkpoints/step-00000002")));
}

TEST_F(DatasetRun, ResumedBehindTheStepsOfADumpOrATraceItSaysThatTheyAreNotWritten) {
  write("data.jsonl", conversations(20));
  TrainConfig config = run_config("past");
  config.epochs = 1;
  config.data.packing = false;
  config.checkpoint.every = 1;
  config.dump.state = parse_steps("2");
  const int64_t epoch = run_training(config, {}).step;
  config.resume = true;
  config.epochs = 1.5;
  config.trace = config.dump.grads = parse_steps("3");
  const std::string said = logged_by([&] { run_training(config, {}); });
  for (const char* key : {"trace", "dump.grads"})
    EXPECT_NE(
        said.find(fmt::format("{} has no effect: it names step 3, but the run resumes after step {}", key, epoch)),
        std::string::npos)
        << said;
  EXPECT_EQ(said.find("dump.state has no effect"), std::string::npos) << "it was written before: " << said;
  EXPECT_NE(said.find(fmt::format("steps was {} in the checkpoint's run, is {} now", epoch, epoch * 3 / 2)),
            std::string::npos)
      << said;
}

TEST_F(DatasetRun, WhatIsNoModelButLiesBesideOneIsRefusedWithWhatIsMeant) {
  write("data.jsonl", conversations(4));
  TrainConfig config = run_config("first");
  config.steps = config.checkpoint.every = 1;
  run_training(config, {});
  config = run_config("second");
  config.model.config = "";
  config.steps = 1;
  const auto said = [&](const std::string& path) {
    config.model.path = at(path);
    return refused_with(ExitCode::bad_input, [&] { run_training(config, {}); });
  };
  EXPECT_NE(said("first").find("is a run, whose trained model is " + at("first/model") + "; give that"),
            std::string::npos)
      << said("first");
  EXPECT_NE(said("first/checkpoints/step-00000001").find("is a checkpoint; write its model with: megatrain export"),
            std::string::npos);
  EXPECT_NE(said("first/model/config.json").find("model.config: " + at("first/model/config.json")), std::string::npos);
  EXPECT_EQ(said("first/model"), "accepted");
}

TEST_F(DatasetRun, SequencesThatAreMostlyPaddingGetAWarning) {
  write("data.jsonl", conversations(6));
  TrainConfig config = run_config("none");
  config.steps = 1;
  const auto said = [&] { return logged_by([&] { open_data(config, model_source(), nullptr); }); };
  const std::string warning = "% of the compute goes to padding";
  config.seq_len = 1024;
  EXPECT_NE(said().find(warning), std::string::npos);
  config.data.packing = false;
  EXPECT_EQ(said().find(warning), std::string::npos) << "a step then ends with its samples";
}

TEST_F(DatasetRun, StoppedWithinAnEpochItGoesOnExactly) {
  write("data.jsonl", conversations(30));
  const auto made = [&](const std::string& name) {
    TrainConfig config = run_config(name);
    config.epochs = 2;
    config.data.eval_split = 5;
    config.eval.every = 3;
    config.optim.schedule = "cosine";
    return config;
  };
  const RunResult whole = run_training(made("whole"), {});
  EXPECT_GT(whole.step, 8);
  TrainConfig config = made("parts");
  volatile std::sig_atomic_t stop = 0;
  RunHooks hooks;
  hooks.stop = &stop;
  hooks.on_step = [&](const StepMetrics& metrics) { stop = metrics.step % 4 == 0 ? SIGINT : 0; };
  RunResult part = run_training(config, hooks);
  config.resume = true;
  while (part.stopped_by) {
    stop = 0;
    part = run_training(config, hooks);
  }
  EXPECT_EQ(part.step, whole.step);
  EXPECT_EQ(part.state_hash, whole.state_hash);
  EXPECT_EQ(read_text_file(at("parts/eval.jsonl"), 1 << 20), read_text_file(at("whole/eval.jsonl"), 1 << 20));

  write("data.jsonl", conversations(31));
  const std::string said = refused_with(ExitCode::bad_config, [&] { run_training(config, {}); });
  EXPECT_NE(said.find("was made with data = "), std::string::npos) << said;
}

TEST_F(DatasetRun, ResumedItReadsATokenizerThatIsGoneFromItsOwnCopy) {
  write("data.jsonl", conversations(30));
  std::filesystem::copy(at("model"), at("tokenizer"));
  const auto made = [&](const std::string& name) {
    TrainConfig config = run_config(name);
    config.steps = 4;
    config.data.tokenizer = at("tokenizer");
    return config;
  };
  const std::string expected = run_training(made("whole"), {}).state_hash;
  for (const bool file : {false, true}) {
    TrainConfig config = made(file ? "by file" : "by folder");
    config.checkpoint.every = 2;
    config.steps = 2;
    if (file) config.data.tokenizer += "/tokenizer.json";
    run_training(config, {});
    std::filesystem::rename(at("tokenizer"), at("elsewhere"));
    config.resume = true;
    config.steps = 4;
    std::string state;
    const std::string said = logged_by([&] { state = run_training(config, {}).state_hash; });
    EXPECT_NE(said.find(config.data.tokenizer + " is gone"), std::string::npos) << said;
    EXPECT_EQ(state, expected);
    const std::string resolved = read_text_file(config.run_dir + "/config.resolved.yaml", 1 << 20);
    EXPECT_NE(resolved.find(config.data.tokenizer), std::string::npos) << "as it was given";
    std::filesystem::rename(at("elsewhere"), at("tokenizer"));
  }
}

TEST_F(DatasetRun, EndsWhenTheEvaluationLossFallsNoMore) {
  TrainConfig config = best_config("run", 0, 2);
  config.epochs = 20;
  config.eval.patience = 3;
  config.optim.lr = 0;
  const RunResult result = run_training(config, {});
  EXPECT_EQ(result.step, 8);  // evaluated after 2, 4, 6, 8: the first is the best, three are not better
  EXPECT_EQ(result.best_step, 2);
  EXPECT_TRUE(std::filesystem::exists(at("run/best/config.json")));
  EXPECT_TRUE(std::filesystem::exists(at("run/model/tokenizer.json")));
}

TEST_F(DatasetRun, TokensSayHowLongItIs) {
  write("data.jsonl", conversations(30));
  TrainConfig config = run_config("run");
  config.tokens = 1000;  // with 256 per step
  EXPECT_EQ(run_training(config, {}).step, 4);
}

TEST_F(DatasetRun, SamplesAreWrittenAndChangeNothing) {
  write("data.jsonl", conversations(30));
  TrainConfig config = run_config("plain");
  config.steps = 6;
  const std::string expected = run_training(config, {}).state_hash;
  config.run_dir = at("samples");
  config.sample = {.every = 2, .prompts = {"question 1", "question 2"}, .max_tokens = 5};
  EXPECT_EQ(run_training(config, {}).state_hash, expected);
  std::ifstream lines(at("samples/samples.jsonl"));
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const nlohmann::json sample = nlohmann::json::parse(line);
    EXPECT_EQ(sample.at("step"), 2 * (count / 2 + 1));
    EXPECT_EQ(sample.at("prompt"), count % 2 ? "question 2" : "question 1");
    EXPECT_TRUE(sample.at("text").is_string());
  }
  EXPECT_EQ(count, 6);
}

// The device's peak is what the plan says, generation included: nothing else is allocated.
TEST_F(DatasetRun, SamplesAreAnsweredWithinWhatThePlanHasForThem) {
  write("data.jsonl", conversations(30));
  TrainConfig config = run_config("plain");
  config.steps = 4;
  const auto planned = [&](const std::string& name) {
    const nlohmann::json memory = nlohmann::json::parse(read_text_file(at(name + "/memory.json"), 1 << 20));
    return memory.at("hbm").get<std::map<std::string, int64_t>>();
  };
  run_training(config, {});
  EXPECT_FALSE(planned("plain").contains("generation"));
  config.sample.every = 1;
  for (const int64_t prompts : {1, 3, 10}) {
    config.run_dir = at("samples-" + std::to_string(prompts));
    config.sample.prompts.assign(static_cast<size_t>(prompts), "question " + std::to_string(prompts));
    config.sample.max_tokens = 200;  // up to the end of the model's context
    int64_t peak = 0;
    RunHooks hooks;
    hooks.on_step = [&](const StepMetrics& metrics) { peak = metrics.hbm_peak; };
    run_training(config, hooks);
    int64_t bytes = 0;
    for (const auto& [tag, of_it] : planned("samples-" + std::to_string(prompts))) bytes += of_it;
    EXPECT_EQ(peak, bytes) << prompts;
    std::ifstream lines(at("samples-" + std::to_string(prompts) + "/samples.jsonl"));
    EXPECT_EQ(std::count(std::istreambuf_iterator<char>(lines), {}, '\n'), 4 * prompts);
  }
}

TEST_F(DatasetRun, AnswersThatAKillCutOffAreMadeByTheResumedRunOnce) {
  write("data.jsonl", conversations(30));
  TrainConfig config = run_config("run");
  config.steps = 4;
  config.checkpoint = {.every = 2, .keep = 9};
  config.sample = {.every = 2, .prompts = {"question 1", "question 2", "question 1"}, .max_tokens = 3};
  run_training(config, {});
  const std::string whole = read_text_file(at("run/samples.jsonl"), 1 << 20);
  const auto first_lines = [&](int count) {
    size_t end = 0;
    for (int i = 0; i < count; ++i) end = whole.find('\n', end) + 1;
    return whole.substr(0, end);
  };
  config.resume = true;
  for (const int kept : {0, 1, 2, 3}) {
    for (const char* name : {"run/hash.json", "run/checkpoints/step-00000004"}) std::filesystem::remove_all(at(name));
    write("run/samples.jsonl", first_lines(kept));
    run_training(config, {});
    EXPECT_EQ(read_text_file(at("run/samples.jsonl"), 1 << 20), whole) << kept << " answers were there";
  }
}

// A stop at any step, before its answers and evaluation are done. They are abandoned, not half written, and the resumed
// run does them first, exactly once.
TEST_F(DatasetRun, AnEvaluationThatAStopGaveUpIsDoneByTheResumedRun) {
  const auto made = [&](const std::string& name) {
    TrainConfig config = best_config(name, 4, 2);
    config.sample = {.every = 1, .prompts = {"question 1", "question 2"}, .max_tokens = 3};
    return config;
  };
  const auto lines = [&](const std::string& run, const std::string& file) {
    return std::filesystem::exists(at(run + "/" + file)) ? read_text_file(at(run + "/" + file), 1 << 20) : "";
  };
  const RunResult whole = run_training(made("whole"), {});
  for (int64_t step = 1; step <= 4; ++step) {
    const std::string run = "stopped-" + std::to_string(step);
    TrainConfig config = made(run);
    volatile std::sig_atomic_t stop = 0;
    RunHooks hooks;
    hooks.stop = &stop;
    hooks.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == step ? SIGHUP : 0; };
    const RunResult stopped = run_training(config, hooks);
    EXPECT_EQ(stopped.stopped_by, SIGHUP);
    EXPECT_EQ(stopped.step, step);
    const auto says = [&](const std::string& file) {
      return lines(run, file).find("{\"step\":" + std::to_string(step) + ",") != std::string::npos;
    };
    EXPECT_FALSE(says("eval.jsonl")) << "after step " << step;
    EXPECT_FALSE(says("samples.jsonl")) << "after step " << step;
    config.resume = true;
    EXPECT_EQ(run_training(config, {}).state_hash, whole.state_hash);
    for (const char* file : {"eval.jsonl", "samples.jsonl"}) EXPECT_EQ(lines(run, file), lines("whole", file)) << step;
    EXPECT_EQ(lines(run, "best/model.safetensors"), lines("whole", "best/model.safetensors")) << step;
    config.run_dir = at(run);
    run_training(config, {});
    EXPECT_EQ(lines(run, "eval.jsonl"), lines("whole", "eval.jsonl")) << "resumed once more";
  }
}

TEST_F(DatasetRun, ResumedWithAHistoryThatLostLinesItSaysOfWhichSteps) {
  TrainConfig config = best_config("run", 5, 1);
  config.checkpoint.every = 5;
  run_training(config, {});
  std::istringstream whole(read_text_file(at("run/eval.jsonl"), 1 << 20));
  std::string kept;
  for (std::string line; std::getline(whole, line);)
    if (!line.starts_with("{\"step\":3,")) kept += line + "\n";
  write("run/eval.jsonl", kept);
  config.resume = true;
  const std::string said = logged_by([&] { run_training(config, {}); });
  EXPECT_NE(said.find("eval.jsonl has no record of step 3,"), std::string::npos) << said;
  EXPECT_EQ(said.find("metrics.jsonl has no record"), std::string::npos) << said;
}

TEST_F(DatasetRun, AnEvaluationIsGivenUpAtTheNextStepOfItsData) {
  struct Stopping : BatchSource {
    BatchSource& source;
    int64_t loads = 0;
    volatile std::sig_atomic_t stop = 0;
    explicit Stopping(BatchSource& from) : source(from) {}
    void load(int64_t step, Batch& into) override {
      source.load(step, into);
      if (++loads == 2) stop = SIGTERM;
    }
    int64_t steps() const override { return source.steps(); }
  };
  write("data.jsonl", conversations(30));
  TrainConfig config = run_config("none");
  config.epochs = 1;
  RunData data = open_data(config, model_source());
  ASSERT_GE(data.train->steps(), 4);
  Session session(config, {.config = model_source().config});
  session.fill_weights();
  Trainer& trainer = session.trainer();
  Stopping source(*data.train);
  EXPECT_FALSE(mean_loss(trainer, source, {.stop = &source.stop}).has_value());
  EXPECT_EQ(source.loads, 2);
  EXPECT_TRUE(mean_loss(trainer, source).has_value());
}

TEST_F(DatasetRun, AStopBeforeTheFirstStepTrainsAndSavesNothing) {
  write("tokens.bin", std::string(4096, '\1'));
  TrainConfig config = run_config("run");
  config.data.train.clear();
  config.data.tokens = at("tokens.bin");
  config.steps = 3;
  const volatile std::sig_atomic_t stop = SIGTERM;
  RunHooks hooks;
  hooks.stop = &stop;
  const RunResult result = run_training(config, hooks);
  EXPECT_EQ(result.stopped_by, SIGTERM);
  EXPECT_EQ(result.step, 0);
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

TEST_F(DatasetRun, ALossThatIsNotFiniteNamesTheSamplesItComesFrom) {
  write("data.jsonl", conversations(8));
  RunData data = open_data(run_config("none"), model_source());
  std::set<std::string> places;
  Batch batch;
  for (int64_t step = 0; step < 3; ++step) {
    data.train->load(step, batch);
    for (const MicroBatch& micro : batch.micro_batches) {
      const int64_t m = &micro - batch.micro_batches.data();
      for (size_t d = 0; d + 1 < micro.document_begin.size(); ++d)
        places.insert(data.train->place(step, m, micro.document_begin[d]));
    }
  }
  std::set<std::string> expected = {""};  // padding
  for (int line = 1; line <= 8; ++line) expected.insert(fmt::format("{}:{}", at("data.jsonl"), line));
  EXPECT_EQ(places, expected);
  std::vector<DocumentAt> all;
  for (size_t d = 0; d + 1 < batch.micro_batches[0].document_begin.size(); ++d)
    all.push_back({.micro_batch = 0, .token = batch.micro_batches[0].document_begin[d]});
  const std::string named = name_documents(*data.train, 2, all);
  EXPECT_NE(named.find("The loss is not finite in " + at("data.jsonl") + ":"), std::string::npos) << named;
}

TEST_F(DatasetRun, AWishToSaveIsGrantedAfterTheStepAndTheRunGoesOn) {
  write("data.jsonl", conversations(30));
  TrainConfig config = run_config("plain");
  config.steps = 6;
  const std::string expected = run_training(config, {}).state_hash;
  config.run_dir = at("saved");
  config.checkpoint = {.every = 4, .keep = 2};
  int64_t step = 0;
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) { step = metrics.step; };
  hooks.take_save_wish = [&] { return step == 2 || step == 5; };
  EXPECT_EQ(run_training(config, hooks).state_hash, expected);
  std::set<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(at("saved/checkpoints")))
    kept.insert(entry.path().filename());
  EXPECT_EQ(kept, (std::set<std::string>{"step-00000004", "step-00000005"}));
}

TEST_F(DatasetRun, AStopWhileTokenisingSaysSoAndMakesNoRun) {
  write("data.jsonl", conversations(30));
  const volatile std::sig_atomic_t stop = SIGTERM;
  RunHooks hooks;
  hooks.stop = &stop;
  TrainConfig config = run_config("run");
  config.steps = 3;
  EXPECT_EQ(run_training(config, hooks).stopped_by, SIGTERM);
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

}  // namespace
}  // namespace megatrain
