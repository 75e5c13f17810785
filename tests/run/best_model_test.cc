// RUN/best: best.json alone says which model it is, across resumes, kills and damage.
#include "megatrain/run/best_model.h"

#include <algorithm>
#include <fstream>
#include <functional>

#include "megatrain/run/best_record.h"
#include "megatrain/run/export_run.h"
#include "megatrain/run/export_source.h"
#include "megatrain/run/run.h"
#include "megatrain/run/run_files.h"
#include "tests/run/dataset_run.h"
#include "tests/support/flip_byte.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

class BestRun : public DatasetRun {
 protected:
  // Every step but the first makes the loss worse.
  TrainConfig diverging(const std::string& name, int64_t steps) {
    TrainConfig config = best_config(name, steps, 1);
    config.optim.lr = 10;
    config.optim.warmup = 6;
    config.optim.clip = 0;
    config.checkpoint = {.every = 1, .keep = 9};
    return config;
  }

  std::string best_weights(const std::string& run) const { return hash_directory(at(run + "/best")).weights; }
};

void expect_says(const std::string& said, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
}

TEST_F(BestRun, ADivergingRunIsWarnedOfAndItsBestModelFound) {
  run_training(best_config("run", 6, 6), {});
  EXPECT_FALSE(find_best_model(at("run"))) << "the last model is the best";

  const TrainConfig config = diverging("diverging", 6);
  expect_says(logged_by([&] { run_training(config, {}); }), {"diverges", "optim.lr"});
  const auto best = find_best_model(at("diverging"));
  ASSERT_TRUE(best);
  EXPECT_EQ(best->path, at("diverging/best"));
  EXPECT_LT(best->step, 6);
  EXPECT_FALSE(find_best_model(at("diverging/model")));
}

TEST_F(BestRun, ARisingEvaluationLossIsWarnedOfOnceWithItsStepsAndTheModelThatIsKept) {
  const std::string said = logged_by([&] { run_training(diverging("run", 6), {}); });
  expect_says(said, {" above the lowest, ", "the evaluation loss rises: ", "run/best is the model of step ",
                     "eval.patience ends such a run"});
  EXPECT_EQ(said.find("the evaluation loss rises"), said.rfind("the evaluation loss rises"));
  EXPECT_EQ(logged_by([&] { run_training(best_config("good", 4, 1), {}); }).find("loss rises"), std::string::npos);
}

TEST_F(BestRun, GuardStopEndsARunThatDivergesAndSaysWhichCheckpointsAreSound) {
  TrainConfig config = diverging("run", 6);
  config.guard = "stop";
  std::string said;
  logged_by([&] { said = refused_with(ExitCode::non_finite, [&] { run_training(config, {}); }); });
  expect_says(said, {"the run diverges, and guard: stop ends it", "lower optim.lr (10 now)", "set optim.clip (off now)",
                     "move the checkpoints of steps after ", "run/checkpoints", "Resume with --resume"});
  EXPECT_FALSE(fs::exists(at("run/hash.json")));
  EXPECT_TRUE(find_best_model(at("run"))) << "what was good stays";
  config = diverging("unsaved", 6);
  config.guard = "stop";
  config.checkpoint.every = 0;
  logged_by([&] { said = refused_with(ExitCode::non_finite, [&] { run_training(config, {}); }); });
  expect_says(said, {"there is no checkpoint to resume from yet"});
}

TEST_F(BestRun, IsWhatAnExportOfACompleteRunTakes) {
  run_training(diverging("run", 6), {});
  const auto best = find_best_model(at("run"));
  ASSERT_TRUE(best);
  const std::string said = logged_by([&] {
    const ExportedRun done = export_run(at("run"), at("best-out"), {});
    EXPECT_EQ(done.step, best->step);
    EXPECT_EQ(done.from, best->path);
  });
  expect_says(said, {"exporting " + at("run/best"), "the run's lowest", "for the last model give ", "step-00000006"});
  EXPECT_EQ(hash_directory(at("best-out")).weights, best_weights("run"));
  logged_by([&] {
    EXPECT_EQ(export_run(at("run/model"), at("last-out"), {}).step, 6);
    EXPECT_EQ(export_run(at("run/checkpoints/step-00000006"), at("saved-out"), {}).step, 6);
    EXPECT_EQ(export_run(at("run/best/"), at("named-out"), {}).step, best->step);
  });
  const std::string last = hash_directory(at("run/model")).weights;
  EXPECT_EQ(hash_directory(at("last-out")).weights, last);
  EXPECT_EQ(hash_directory(at("saved-out")).weights, last);
  EXPECT_EQ(hash_directory(at("named-out")).weights, best_weights("run"));
}

TEST_F(BestRun, OfARunThatIsNotCompleteIsNamedByAnExportAndNotTaken) {
  run_training(diverging("run", 6), {});
  fs::remove(at("run/hash.json"));
  const std::string said = logged_by([&] { EXPECT_EQ(export_run(at("run"), at("out"), {}).step, 6); });
  expect_says(said, {"the run is not complete, so its newest checkpoint is exported", at("run/best")});
}

TEST_F(BestRun, TheBestModelIsTheOneOfTheLowestEvaluationLoss) {
  TrainConfig config = best_config("run", 12, 3);
  config.optim.lr = 0.02;
  const RunResult result = run_training(config, {});
  ASSERT_TRUE(result.eval_loss.has_value());
  TrainConfig again = run_config("again");
  again.model = {.path = at("run/best")};
  again.data.eval_split = 5;
  again.steps = 1;
  again.optim.lr = 0;
  const RunResult best = run_training(again, {});
  double lowest = 1e30;
  std::ifstream lines(at("run/eval.jsonl"));
  for (std::string line; std::getline(lines, line);)
    lowest = std::min(lowest, nlohmann::json::parse(line).at("loss").get<double>());
  EXPECT_EQ(*best.eval_loss, lowest);
  EXPECT_EQ(read_best_record(at("run"))->loss, lowest);
}

TEST_F(BestRun, ABestModelThatWasDamagedIsReadBackByNothing) {
  run_training(best_config("run", 2, 2), {});
  TrainConfig again = run_config("again");
  again.model = {.path = at("run/best")};
  again.steps = 1;
  const std::string weights = at("run/best/model.safetensors");
  flip_byte(weights, 100);
  for (const std::function<void()>& read : {std::function<void()>([&] { run_training(again, {}); }),
                                            {[&] { ExportSource(at("run/best"), true); }},
                                            {[&] { hash_model_of_run(at("run/best")); }},
                                            {[&] { verify_model_of_run(at("run/best/")); }}})
    expect_says(refused_with(ExitCode::bad_input, read), {"run/best", "damaged"});
  flip_byte(weights, 100);
  run_training(again, {});
  for (const char* text : {"{}", "", "{\"step\":2,\"model\":\"x\",\"checksum\":\"y\"}"}) {
    write("run/best.json", text);
    expect_says(refused_with(ExitCode::bad_input, [&] { verify_model_of_run(at("run/best")); }),
                {"best.json", "damaged"});
  }
}

TEST_F(BestRun, AWorseModelDoesNotTakeItsPlaceWhenTheHistoryIsGone) {
  TrainConfig config = diverging("run", 4);
  run_training(config, {});
  const auto before = find_best_model(at("run"));
  ASSERT_TRUE(before);
  const std::string weights = best_weights("run");
  fs::remove(at("run/eval.jsonl"));
  config.resume = true;
  config.steps = 5;
  run_training(config, {});
  EXPECT_EQ(best_weights("run"), weights);
  const auto after = find_best_model(at("run"));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->step, before->step);
  EXPECT_EQ(after->loss, before->loss);
}

// The checkpoints are older than the best model, and the resumed run reaches its step with different weights.
TEST_F(BestRun, KeepsItsStepAndLossWhenAResumeGoesBackBehindIt) {
  TrainConfig config = best_config("run", 6, 2);
  config.checkpoint = {.every = 2, .keep = 9};
  config.optim.lr = 1e-4;
  run_training(config, {});
  const std::optional<BestRecord> before = read_best_record(at("run"));
  ASSERT_TRUE(before);
  ASSERT_EQ(before->step, 6) << "it learns";
  const std::string weights = best_weights("run");
  for (const char* step : {"4", "6"}) fs::remove_all(at("run/checkpoints/step-0000000") + step);
  config.resume = true;
  config.optim.lr = 0;
  expect_says(logged_by([&] { run_training(config, {}); }), {"run/best is of step 6"});
  EXPECT_EQ(best_weights("run"), weights);
  const auto after = find_best_model(at("run"));
  ASSERT_TRUE(after) << "RUN/model is of step 6 too, and another model";
  EXPECT_EQ(after->step, 6);
  EXPECT_EQ(after->loss, before->loss);
}

TEST_F(BestRun, WhenDamagedOrGoneAResumeSaysSoAndTheNextEvaluationReplacesIt) {
  int64_t steps = 3;
  TrainConfig config = diverging("run", steps);
  run_training(config, {});
  config.resume = true;
  const auto resumed = [&] {
    config.steps = ++steps;
    return logged_by([&] { run_training(config, {}); });
  };
  EXPECT_EQ(resumed().find("run/best"), std::string::npos) << "it is whole";
  ASSERT_LT(read_best_record(at("run"))->step, steps);

  flip_byte(at("run/best/model.safetensors"), 100);
  expect_says(resumed(), {"run/best is damaged", "the next evaluation", "best.previous"});
  EXPECT_EQ(read_best_record(at("run"))->step, steps) << "its loss is higher";
  verify_model_of_run(at("run/best"));

  for (const char* name : {"run/best", "run/best.previous"}) fs::remove_all(at(name));
  expect_says(resumed(), {"run/best is gone", "the next evaluation"});
  EXPECT_EQ(read_best_record(at("run"))->step, steps);
  verify_model_of_run(at("run/best"));

  write("run/best.json", "{}");
  expect_says(resumed(), {"best.json is damaged", "the next evaluation"});
  EXPECT_EQ(read_best_record(at("run"))->step, steps);
}

TEST_F(BestRun, AKillWhileItIsReplacedLeavesARecordOfWhateverItHolds) {
  TrainConfig config = diverging("run", 3);
  run_training(config, {});
  const BestRecord former = *read_best_record(at("run"));
  const std::string coming = hash_directory(at("run/model")).weights;
  begin_best_record(at("run"), {.step = 3, .loss = 0.5, .weights = coming, .data = former.data});
  ASSERT_FALSE(fs::exists(at("run/best.json")));
  ASSERT_TRUE(read_best_record(at("run")));
  EXPECT_EQ(read_best_record(at("run"))->step, former.step) << "it was not replaced yet";
  EXPECT_EQ(find_best_model(at("run"))->loss, former.loss);

  fs::remove_all(at("run/best"));
  fs::copy(at("run/model"), at("run/best"), fs::copy_options::recursive);
  const BestRecord next = *read_best_record(at("run"));
  EXPECT_EQ(next.step, 3);
  EXPECT_EQ(next.loss, 0.5);
  EXPECT_EQ(next.weights, best_weights("run"));

  fs::copy(at("run"), at("flipped"), fs::copy_options::recursive);
  flip_byte(at("flipped/best/model.safetensors"), 900);
  expect_error(ExitCode::bad_input, {"flipped/best is damaged"}, [&] { verify_model_of_run(at("flipped/best")); });
  expect_error(ExitCode::bad_input, {"flipped/best is damaged"}, [&] { find_best_model(at("flipped")); });

  config.steps = 4;
  config.resume = true;
  run_training(config, {});
  EXPECT_EQ(read_best_record(at("run"))->step, 3) << "no later loss is below 0.5";
  EXPECT_TRUE(fs::exists(at("run/best.json")));
  EXPECT_FALSE(fs::exists(at("run/best.pending.json")));
}

TEST_F(BestRun, ALossOnOtherDataCountsNoMore) {
  TrainConfig config = diverging("run", 3);
  config.data.eval_split = 0;
  write("some.jsonl", conversations(4));
  write("other.jsonl", conversations(6));
  config.data.eval = {{.path = at("some.jsonl")}};
  run_training(config, {});
  ASSERT_LT(read_best_record(at("run"))->step, 3);
  const std::string former = best_weights("run");
  config.steps = 4;
  config.resume = true;
  config.data.eval = {{.path = at("other.jsonl")}};
  const std::string said = logged_by([&] { run_training(config, {}); });
  expect_says(said, {"run/best was evaluated on other data", "best.previous now: its loss does not count"});
  EXPECT_EQ(said.find("not written by this run"), std::string::npos) << said;
  EXPECT_EQ(read_best_record(at("run"))->step, 4);
  EXPECT_EQ(hash_directory(at("run/best.previous")).weights, former);
}

TEST_F(BestRun, OfAnEarlierMegatrainsRecordTheLossIsThatOfItsStepInTheHistory) {
  run_training(diverging("run", 3), {});
  const auto best = find_best_model(at("run"));
  BestRecord record = *read_best_record(at("run"));
  record.loss.reset();
  write_best_record(at("run"), record);
  write("run/eval.jsonl", read_bytes(at("run/eval.jsonl")) + "{\"step\":9,\"loss\":0.001}\n");
  ASSERT_TRUE(find_best_model(at("run")));
  EXPECT_EQ(find_best_model(at("run"))->step, best->step);
  EXPECT_EQ(find_best_model(at("run"))->loss, best->loss);
}

TEST_F(BestRun, OfAdaptersIsFoundAndAResumeContinuesFromIt) {
  run_training(best_config("base", 2, 2), {});
  TrainConfig config = best_config("run", 2, 1);
  config.model = {.path = at("base/model")};
  config.adapter = {.rank = 2};
  config.optim.lr = 1e-3;
  config.checkpoint = {.every = 1, .keep = 9};
  run_training(config, {});
  config.steps = 6;
  config.resume = true;
  config.optim.lr = 3;
  const std::string said = logged_by([&] { run_training(config, {}); });
  EXPECT_EQ(said.find("run/best is gone"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(at("run/best.previous")));
  std::pair<double, int64_t> lowest = {1e30, 0};
  std::ifstream lines(at("run/eval.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto evaluation = nlohmann::json::parse(line);
    lowest = std::min(lowest, {evaluation.at("loss").get<double>(), evaluation.at("step").get<int64_t>()});
  }
  EXPECT_EQ(read_best_record(at("run"))->loss, lowest.first);
  ASSERT_LT(lowest.second, 6);
  const auto best = find_best_model(at("run"));
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, lowest.second);
  logged_by([&] {
    EXPECT_EQ(export_run(at("run"), at("best-out"), {}).step, best->step);
    EXPECT_EQ(export_run(at("run/model"), at("last-out"), {}).step, 6);
  });
  EXPECT_EQ(hash_directory(at("best-out")).weights, best_weights("run"));
  EXPECT_EQ(hash_directory(at("last-out")).weights, hash_directory(at("run/model")).weights);
}

TEST_F(BestRun, WithoutARecordNothingIsSaidOfItAndItIsKept) {
  TrainConfig config = diverging("run", 3);
  run_training(config, {});
  const std::string former = best_weights("run");
  fs::remove(at("run/best.json"));
  expect_says(logged_by([&] { EXPECT_FALSE(find_best_model(at("run"))); }), {"best.json is not there", "run/best"});
  config.steps = 4;
  config.resume = true;
  run_training(config, {});
  EXPECT_EQ(read_best_record(at("run"))->step, 4);
  EXPECT_EQ(hash_directory(at("run/best.previous")).weights, former);
}

TEST_F(BestRun, ThatIsGoneIsWarnedOf) {
  run_training(diverging("run", 3), {});
  fs::remove_all(at("run/best"));
  expect_says(logged_by([&] { EXPECT_FALSE(find_best_model(at("run"))); }), {"run/best is gone", "best.json"});
  expect_says(logged_by([&] { ExportSource(at("run"), true); }), {"run/best is gone"});
  fs::remove(at("run/best.json"));
  EXPECT_EQ(logged_by([&] { find_best_model(at("run")); }), "");
}

}  // namespace
}  // namespace megatrain
