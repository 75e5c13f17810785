// What an export of a run takes along, wherever its sources are by then.
#include "megatrain/run/export_run.h"

#include <map>

#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/io/json.h"
#include "megatrain/run/run.h"
#include "megatrain/run/run_files.h"
#include "tests/hub/fixtures.h"
#include "tests/places.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

// Every file below, by its path there.
std::map<std::string, std::string> files_in(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), directory).string()] = read_bytes(entry.path().string());
  }
  return files;
}

class ExportRun : public testing::Test {
 protected:
  void SetUp() override {
    set_log_quiet(true);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
                             "additional_chat_templates/tools.jinja"}) {
      fs::create_directories(fs::path(tokenizer_ + "/" + name).parent_path());
      write_bytes(tokenizer_ + "/" + name, fmt::format("{{\"this\": \"is {}\"}}", name));
    }
  }
  void TearDown() override { set_log_quiet(false); }

  // Random weights with a tokenizer of their own.
  TrainConfig config() const {
    const std::string golden = in_repository("tests/parity/goldens/qwen2_tied");
    TrainConfig c;
    c.model.config = golden + "/model/config.json";
    c.data.tokenizer = tokenizer_;
    c.data.tokens = golden + "/tokens.bin";
    c.data.dtype = nlohmann::json::parse(read_bytes(golden + "/expected.json")).at("data").at("dtype");
    c.device = "cpu";
    c.threads = 1;
    c.seq_len = 16;
    c.batch = 2;
    c.micro_batch = 2;
    c.steps = 2;
    c.run_dir = directory_ / "run";
    return c;
  }

  // Trains until a checkpoint of `step`.
  static void stop_after(const TrainConfig& config, int64_t step) {
    volatile std::sig_atomic_t stop = 0;
    RunHooks hooks;
    hooks.stop = &stop;
    hooks.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step == step) stop = SIGTERM;
    };
    run_training(config, hooks);
  }

  std::string warnings_of_export(const std::string& run, const std::string& out) const {
    set_log_quiet(false);
    testing::internal::CaptureStderr();
    export_run(run, out, {});
    set_log_quiet(true);
    return testing::internal::GetCapturedStderr();
  }

  TemporaryDirectory directory_;
  const std::string tokenizer_ = directory_ / "tokenizer";
};

}  // namespace

TEST_F(ExportRun, IsTheRunsModelByteForByteWhenTheTokenizerHasMoved) {
  TrainConfig c = config();
  c.checkpoint.every = 2;
  run_training(c, {});
  fs::rename(tokenizer_, directory_ / "elsewhere");
  write_bytes(directory_ / "LICENSE", "of what is beside the tokenizer's former place");
  export_run(c.run_dir, directory_ / "out", {});
  const auto model = files_in(c.run_dir + "/model");
  EXPECT_TRUE(model.contains("tokenizer.json") && model.contains("chat_template.jinja") &&
              model.contains("additional_chat_templates/tools.jinja"));
  EXPECT_EQ(files_in(directory_ / "out"), model);
}

TEST_F(ExportRun, OfAStoppedRunHasTheTokenizerAndTheTemplateThatItBeganWith) {
  TrainConfig c = config();
  c.data.chat_template = directory_ / "own.jinja";
  write_bytes(c.data.chat_template, "the run's own");
  stop_after(c, 1);
  for (const std::string& path : {tokenizer_, c.data.chat_template}) fs::remove_all(path);
  export_run(c.run_dir, directory_ / "out", {});
  auto files = files_in(directory_ / "out");
  EXPECT_EQ(files["chat_template.jinja"], "the run's own");
  EXPECT_TRUE(files.contains("tokenizer.json"));
  EXPECT_FALSE(files.contains("additional_chat_templates/tools.jinja"));
}

TEST_F(ExportRun, AResumedRunWhoseTokenizerIsGoneWritesTheModelWithItsOwnCopy) {
  TrainConfig c = config();
  stop_after(c, 1);
  fs::remove_all(tokenizer_);
  c.resume = true;
  run_training(c, {});
  EXPECT_TRUE(files_in(c.run_dir + "/model").contains("tokenizer.json"));
}

TEST_F(ExportRun, ATokenizerThatIsNotThereIsRefusedBeforeAnythingIsTrained) {
  TrainConfig c = config();
  c.data.tokenizer = directory_ / "nowhere";
  RunHooks hooks;
  hooks.on_step = [](const StepMetrics&) { FAIL(); };
  expect_error(ExitCode::bad_input, {"data.tokenizer", "nowhere"}, [&] { run_training(c, hooks); });
  EXPECT_FALSE(fs::exists(c.run_dir));
}

TEST_F(ExportRun, OfAnEarlierMegatrainsRunTakesWhatItsModelHasOrSaysWhatIsGone) {
  const TrainConfig c = config();
  run_training(c, {});
  const auto model = files_in(c.run_dir + "/model");
  fs::remove_all(companions_of(c.run_dir));
  fs::remove_all(tokenizer_);
  export_run(c.run_dir, directory_ / "whole", {});
  EXPECT_EQ(files_in(directory_ / "whole"), model);

  SetUp();
  TrainConfig stopped = config();
  stopped.run_dir = directory_ / "stopped";
  stop_after(stopped, 1);
  fs::remove_all(companions_of(stopped.run_dir));
  fs::remove_all(tokenizer_);
  const std::string lines = warnings_of_export(stopped.run_dir, directory_ / "without");
  EXPECT_NE(lines.find(tokenizer_ + " is gone"), std::string::npos) << lines;
}

}  // namespace megatrain
