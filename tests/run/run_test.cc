// Whole runs in process: the hooks, and stopping at any step.
#include "megatrain/run/run.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "megatrain/plan/plan_json.h"
#include "tests/support/dense_workload.h"
#include "tests/support/plan_changes.h"
#include "tests/run/golden_run.h"

namespace megatrain {

namespace {

constexpr int64_t kSteps = 5;

class RunTest : public GoldenRun {
 protected:
  TrainConfig config(const std::string& run) const {
    TrainConfig c = run_config(run);
    c.model.path = golden_ + "/model";
    c.batch = 4;
    c.steps = kSteps;
    c.optim.lr = 1e-3;
    c.optim.schedule = "linear";
    return c;
  }
};

}  // namespace

TEST_F(RunTest, CallsTheHookOnceAStepWithWhatTheMetricsSay) {
  std::vector<int64_t> steps;
  std::string lines;
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) {
    steps.push_back(metrics.step);
    lines += metrics_json(metrics) + "\n";
  };
  const TrainConfig c = config("run");
  const RunResult result = run_training(c, hooks);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(read_bytes(c.run_dir + "/metrics.jsonl"), lines);
  EXPECT_EQ(result.step, kSteps);
  EXPECT_EQ(result.stopped_by, 0);
  EXPECT_EQ(result.state_hash.size(), 32u);
  EXPECT_EQ(listing(c.run_dir),
            (std::set<std::string>{"companions", "companions.json", "config.resolved.yaml", "hash.json",
                                   "identity.json", "lanes.json", "live.json", "memory.json", "metrics.jsonl", "model",
                                   "model_config.json", "plan.json", "tensorboard"}));
}

TEST_F(RunTest, StoppedAfterAnyStepAndResumedItEndsTheSame) {
  for (const char* precision : {"bf16", "fp32"}) {
    for (const double clip : {0.3, 0.0}) {
      const auto made = [&](const std::string& run) {
        TrainConfig c = config(fmt::format("{}-{}-{}", run, precision, clip));
        c.precision = precision;
        c.optim.clip = clip;
        return c;
      };
      const std::string expected = run_training(made("straight"), {}).state_hash;
      for (int64_t step = 1; step <= kSteps; ++step) {
        TrainConfig c = made(fmt::format("stop-{}", step));
        const RunResult stopped = run_until(c, step);
        EXPECT_EQ(stopped.stopped_by, SIGTERM);
        EXPECT_EQ(stopped.step, step);
        EXPECT_EQ(listing(c.run_dir).count("model"), 0u);
        c.resume = true;
        EXPECT_EQ(run_training(c, {}).state_hash, expected)
            << precision << ", clip " << clip << ", stopped after step " << step;
      }
    }
  }
}

TEST_F(RunTest, StoppedAtEveryStepItStillEndsTheSame) {
  const std::string expected = run_training(config("straight"), {}).state_hash;
  TrainConfig c = config("often");
  c.resume = true;
  for (int64_t step = 1; step <= kSteps; ++step) EXPECT_EQ(run_until(c, step).step, step);
  EXPECT_EQ(run_training(c, {}).state_hash, expected);
}

TEST_F(RunTest, ResumeIsExactUnderAnotherPlan) {
  const std::string expected = run_training(config("straight"), {}).state_hash;
  TrainConfig c = config("replanned");
  run_until(c, 2);
  Plan plan{.records = std::vector<RecordPlan>(4),
            .phases = std::vector<PhasePlan>(4),
            .rings = {.weight_slots = 1, .gradients_out = 1},
            .sweeps = {1, 1}};
  plan.record(1).live_on_device();
  plan.record(2).updated_by = UpdatedBy::device;  // visits the device
  plan.record(3).live_on_device();
  Workload w{.phases = std::vector<PhaseWork>(4)};  // needed for the names of levels
  w.phases[1].levels = w.phases[2].levels = block_levels({}, {});
  plan.phase(1) = {.keep = level_named(w, 1, "attention"), .input = Tier::host};
  plan.phase(2) = {.keep = level_named(w, 2, "everything"), .input = Tier::host};
  write_bytes(directory_ / "plan.json", plan_to_json(w, plan).dump());
  c.plan = directory_ / "plan.json";
  c.resume = true;
  EXPECT_EQ(run_training(c, {}).state_hash, expected);
}

TEST_F(RunTest, ResumeRefusesWhateverWouldChangeTheBits) {
  TrainConfig c = config("run");
  run_until(c, 2);
  c.resume = true;
  const auto refused = [&](const std::string& key, auto&& change) {
    TrainConfig other = c;
    change(other);
    expect_error(ExitCode::bad_config, {key, "step-00000002"}, [&] { run_training(other, {}); });
  };
  refused("precision", [](TrainConfig& o) { o.precision = "fp32"; });
  refused("seq_len", [](TrainConfig& o) { o.seq_len = 8; });
  refused("batch = 4", [](TrainConfig& o) { o.batch = 8; });
  refused("micro_batch = 2", [](TrainConfig& o) { o.micro_batch = 1; });
  refused("seed", [](TrainConfig& o) { o.seed = 9; });
  refused("head_chunk", [](TrainConfig& o) { o.head_chunk = 3; });
  refused("mlp_chunk", [](TrainConfig& o) { o.mlp_chunk = 5; });
}

TEST_F(RunTest, ResumeRefusesAChangedModelAndChangedData) {
  TrainConfig c = config("run");
  const std::string model = directory_ / "model", tokens = directory_ / "tokens.bin";
  std::filesystem::copy(c.model.path, model, std::filesystem::copy_options::recursive);
  std::filesystem::copy(c.data.tokens, tokens);
  c.model.path = model;
  c.data.tokens = tokens;
  const std::string expected = run_training(
                                   [&] {
                                     TrainConfig straight = c;
                                     straight.run_dir = directory_ / "straight";
                                     return straight;
                                   }(),
                                   {})
                                   .state_hash;
  run_until(c, 2);
  c.resume = true;
  const std::string config_text = read_bytes(model + "/config.json"), ids = read_bytes(tokens);
  const auto refused = [&](const nlohmann::json& change, const std::string& name) {
    nlohmann::json object = nlohmann::json::parse(config_text);
    object.erase("layer_types");  // must change together with num_hidden_layers
    object.update(change);
    write_bytes(model + "/config.json", object.dump());
    expect_error(ExitCode::bad_config, {"step-00000002", name, "this run has"}, [&] { run_training(c, {}); });
  };
  const nlohmann::json now = nlohmann::json::parse(config_text);
  refused({{"rope_theta", 77777.0}, {"rope_parameters", nullptr}}, "rope_theta");
  refused({{"rms_norm_eps", 1e-3}}, "rms_norm_eps");
  refused({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}, {"rope_parameters", nullptr}}, "rope_type");
  refused({{"num_attention_heads", 2 * now.at("num_attention_heads").get<int>()},
           {"num_key_value_heads", 2 * now.at("num_key_value_heads").get<int>()}},
          "num_attention_heads");
  refused({{"use_sliding_window", true}, {"sliding_window", 4}, {"max_window_layers", 0}}, "sliding_window");
  refused({{"pad_token_id", 3}}, "pad_token_id");
  write_bytes(model + "/config.json", config_text);

  std::string other = ids;
  other[other.size() / 2] ^= 1;
  write_bytes(tokens, other);
  expect_error(ExitCode::bad_config, {"data.tokens", "give the file"}, [&] { run_training(c, {}); });
  write_bytes(tokens, ids);
  EXPECT_EQ(run_training(c, {}).state_hash, expected);
}

TEST_F(RunTest, ALinkOutOfTheModelsFolderIsRefusedBeforeAnythingIsTrainedOrWritten) {
  TrainConfig c = config("run");
  const std::string model = directory_ / "model";
  std::filesystem::copy(c.model.path, model, std::filesystem::copy_options::recursive);
  c.model.path = model;
  write_bytes(directory_ / "secret", "private");
  std::filesystem::create_symlink("../secret", model + "/LICENSE");
  int64_t steps = 0;
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics&) { ++steps; };
  expect_error(ExitCode::bad_input, {model + "/LICENSE", directory_ / "secret"}, [&] { run_training(c, hooks); });
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model", "secret"}));

  // the tokenizer's folder is exported with a model that starts from random weights
  c.model = {.config = model + "/config.json"};
  c.data.tokenizer = model;
  expect_error(ExitCode::bad_input, {model + "/LICENSE"}, [&] { run_training(c, hooks); });
  EXPECT_EQ(listing(directory_.path()), (std::set<std::string>{"model", "secret"}));
}

TEST_F(RunTest, ResumeWithAnotherLearningRateGoesOnAndSaysSo) {
  TrainConfig c = config("run");
  run_until(c, 2);
  c.resume = true;
  c.optim.lr = 2e-3;
  c.steps = kSteps + 1;
  set_log_quiet(false);
  testing::internal::CaptureStderr();
  const RunResult result = run_training(c, {});
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.step, kSteps + 1);
  EXPECT_NE(lines.find("optim.lr was 0.001 in the checkpoint's run, is 0.002 now"), std::string::npos) << lines;
  EXPECT_NE(lines.find("steps was 5 in the checkpoint's run, is 6 now"), std::string::npos) << lines;
}

TEST_F(RunTest, AStepAfterACheckpointSaysThatItsTimeWentThere) {
  TrainConfig c = config("run");
  c.checkpoint.every = 2;
  std::map<int64_t, StepReport> steps;
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) { steps[metrics.step] = metrics.report; };
  run_training(c, hooks);
  std::set<int64_t> after;
  for (const auto& [step, report] : steps) {
    if (report.paused_for == "the checkpoint") after.insert(step);
    EXPECT_LE(report.paused_s, report.seconds);
  }
  // on a busy machine, the data of one step may take longer than a small checkpoint
  EXPECT_TRUE(after == (std::set<int64_t>{3, 5}) || after == std::set<int64_t>{3} || after == std::set<int64_t>{5})
      << after.size();
  EXPECT_EQ(steps.at(1).paused_s, 0) << "the first counts from its own start";
  EXPECT_GT(steps.at(3).paused_s, 0);
}

TEST_F(RunTest, ResumingWithoutACheckpointMovesTheEarlierRunAside) {
  TrainConfig c = config("run");
  run_training(c, {});
  const std::string metrics = read_bytes(c.run_dir + "/metrics.jsonl");
  const std::string model = read_bytes(c.run_dir + "/model/model.safetensors");
  c.resume = true;
  c.optim.lr = 2e-3;
  EXPECT_EQ(run_training(c, {}).step, kSteps);
  EXPECT_EQ(read_bytes(c.run_dir + ".1/metrics.jsonl"), metrics);
  EXPECT_EQ(read_bytes(c.run_dir + ".1/model/model.safetensors"), model);
  EXPECT_NE(read_bytes(c.run_dir + "/model/model.safetensors"), model);
}

TEST_F(RunTest, ARunWhoseDirectoryIsMovedEndsAndWritesNothingIntoAnothers) {
  TrainConfig c = config("run");
  c.checkpoint.every = 1;
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step != 2) return;
    std::filesystem::rename(c.run_dir, directory_ / "moved");
    std::filesystem::create_directory(c.run_dir);
    write_bytes(c.run_dir + "/theirs", "mine");
  };
  expect_error(ExitCode::io, {c.run_dir, "moved or replaced", "DIR is its place now"}, [&] { run_training(c, hooks); });
  EXPECT_EQ(listing(c.run_dir), (std::set<std::string>{"theirs"}));
  EXPECT_EQ(listing(directory_ / "moved/checkpoints"), (std::set<std::string>{"step-00000001"}));
}

TEST_F(RunTest, AnErrorOfTheDiskSaysFromWhichCheckpointToGoOnOrThatThereIsNone) {
  TrainConfig c = config("run");
  const auto failing = [&](int64_t step, ExitCode code) {
    RunHooks hooks;
    hooks.on_step = [=](const StepMetrics& metrics) {
      if (metrics.step == step) fail(code, "the disk has broken; mend it.");
    };
    try {
      run_training(c, hooks);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(nlohmann::json::parse(read_bytes(c.run_dir + "/live.json")).at("message"), error.what());
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const std::string mend = "the disk has broken; mend it", none = ". Then start again: there is no checkpoint";
  EXPECT_TRUE(failing(3, ExitCode::io).starts_with(mend + none));
  c.checkpoint.every = 2;
  EXPECT_TRUE(failing(2, ExitCode::io).starts_with(mend + none)) << "the checkpoint comes behind the hook";
  const std::string go_on =
      fmt::format("{}. Then resume from the checkpoint of step 2 with 'megatrain train {} --resume'", mend,
                  c.run_dir + "/config.resolved.yaml");
  EXPECT_EQ(failing(3, ExitCode::io), go_on);
  c.resume = true;
  EXPECT_EQ(failing(3, ExitCode::io), go_on) << "the checkpoint that it began with";
  EXPECT_EQ(failing(3, ExitCode::non_finite), mend + ". Then resume from the checkpoint of step 2 with --resume");
  EXPECT_EQ(failing(3, ExitCode::bad_input), mend + ".");
}

TEST_F(RunTest, ResumingToFewerStepsThanAreDoneIsRefused) {
  TrainConfig c = config("run");
  run_until(c, 3);
  c.resume = true;
  c.steps = 2;
  expect_error(ExitCode::bad_config, {"step-00000003", "step 3", "2 steps"}, [&] { run_training(c, {}); });
  c.steps = 3;
  const RunResult result = run_training(c, {});
  EXPECT_EQ(result.step, 3);
  EXPECT_FALSE(result.last_loss);  // this process ran no step
}

TEST_F(RunTest, FilesThatAreRemovedUnderARunEndItWithASentenceAndTheModelIsThere) {
  const TrainConfig c = config("run");
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step != 2) return;
    for (const std::string& name : listing(c.run_dir)) std::filesystem::remove_all(c.run_dir + "/" + name);
  };
  expect_error(ExitCode::io,
               {"metrics.jsonl", "config.resolved.yaml", "removed from " + c.run_dir, "model is complete"},
               [&] { run_training(c, hooks); });
  EXPECT_TRUE(listing(c.run_dir).contains("model"));
}

TEST_F(RunTest, ADirectoryThatIsRemovedUnderARunEndsItWithASentence) {
  const TrainConfig c = config("run");
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == 2) std::filesystem::remove_all(c.run_dir);
  };
  expect_error(ExitCode::io, {c.run_dir, "removed"}, [&] { run_training(c, hooks); });
  EXPECT_FALSE(std::filesystem::exists(c.run_dir));
}

TEST_F(RunTest, AResumeWritesThroughNoLink) {
  TrainConfig c = config("run");
  run_until(c, 2);
  c.resume = true;
  const std::string outside = directory_ / "outside";
  for (const char* name :
       {"metrics.jsonl", "config.resolved.yaml", "checkpoints", "tensorboard", "companions", "best", "lock"}) {
    const std::string path = c.run_dir + "/" + name;
    std::filesystem::remove_all(outside);
    if (std::filesystem::exists(path)) std::filesystem::rename(path, outside);
    const bool folder = std::filesystem::is_directory(outside);
    if (!folder && !std::filesystem::exists(outside)) write_bytes(outside, "of another");
    const std::set<std::string> names = folder ? listing(outside) : std::set<std::string>();
    const std::string before = folder ? "" : read_bytes(outside);
    std::filesystem::create_symlink(outside, path);
    expect_error(ExitCode::io, {path, "link"}, [&] { run_training(c, {}); });
    if (folder) {
      EXPECT_EQ(listing(outside), names);
    } else {
      EXPECT_EQ(read_bytes(outside), before);
    }
    std::filesystem::remove(path);
    if (std::string_view(name) != "lock") std::filesystem::rename(outside, path);
  }
  EXPECT_EQ(run_training(c, {}).step, kSteps);
}

TEST_F(RunTest, DamagedLinesOfAHistoryAreKeptAsideWhenTheRunGoesOn) {
  TrainConfig c = config("run");
  run_until(c, 3);
  const std::string path = c.run_dir + "/metrics.jsonl";
  std::string text = read_bytes(path);
  const size_t second = text.find('\n') + 1;
  text[second] = 'x';
  const std::string damaged = text.substr(second, text.find('\n', second) + 1 - second);
  write_bytes(path, text);
  c.resume = true;
  set_log_quiet(false);
  testing::internal::CaptureStderr();
  run_training(c, {});
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find(path + ":2:"), std::string::npos) << lines;
  EXPECT_EQ(read_bytes(path + ".damaged"), damaged);
  EXPECT_EQ(std::ranges::count(read_bytes(path), '\n'), kSteps - 1);
}

}  // namespace megatrain
