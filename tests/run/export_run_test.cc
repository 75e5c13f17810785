// The files that an export of a run includes, wherever their sources are by then.
#include "megatrain/run/export_run.h"

#include <sys/stat.h>

#include <functional>
#include <map>

#include <fmt/format.h>

#include "megatrain/run/companion_record.h"
#include "megatrain/run/run_files.h"
#include "tests/run/golden_run.h"
#include "tests/support/said.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

// Every file below the directory, by its relative path.
std::map<std::string, std::string> files_in(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), directory).string()] = read_bytes(entry.path().string());
  }
  return files;
}

class ExportRun : public GoldenRun {
 protected:
  void SetUp() override {
    GoldenRun::SetUp();
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
                             "additional_chat_templates/tools.jinja"}) {
      fs::create_directories(fs::path(tokenizer_ + "/" + name).parent_path());
      write_bytes(tokenizer_ + "/" + name, fmt::format("{{\"this\": \"is {}\"}}", name));
    }
  }

  // Random weights, with a separate tokenizer.
  TrainConfig config(const std::string& run = "run") const {
    TrainConfig c = run_config(run);
    c.model.config = golden_ + "/model/config.json";
    c.data.tokenizer = tokenizer_;
    c.batch = 2;
    c.steps = 2;
    return c;
  }

  template <class Action>
  static std::string warnings_of(const Action& action) {
    set_log_quiet(false);
    std::string said = logged_by(action);
    set_log_quiet(true);
    return said;
  }

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
  run_until(c, 1);
  for (const std::string& path : {tokenizer_, c.data.chat_template}) fs::remove_all(path);
  export_run(c.run_dir, directory_ / "out", {});
  auto files = files_in(directory_ / "out");
  EXPECT_EQ(files["chat_template.jinja"], "the run's own");
  EXPECT_TRUE(files.contains("tokenizer.json"));
  EXPECT_FALSE(files.contains("additional_chat_templates/tools.jinja"));
}

TEST_F(ExportRun, AResumedRunWhoseTokenizerIsGoneWritesTheModelWithItsOwnCopy) {
  TrainConfig c = config();
  run_until(c, 1);
  fs::remove_all(tokenizer_);
  c.resume = true;
  run_training(c, {});
  EXPECT_TRUE(files_in(c.run_dir + "/model").contains("tokenizer.json"));
}

TEST_F(ExportRun, ARunWithoutACheckpointWhoseTokenizerIsGoneStaysWhereItIs) {
  TrainConfig c = config();
  run_training(c, {});
  fs::remove_all(tokenizer_);
  c.resume = true;
  expect_error(ExitCode::bad_input, {"data.tokenizer", tokenizer_}, [&] { run_training(c, {}); });
  EXPECT_TRUE(fs::exists(c.run_dir + "/model"));
  EXPECT_FALSE(fs::exists(c.run_dir + ".1"));
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
  const TrainConfig stopped = config("stopped");
  run_until(stopped, 1);
  fs::remove_all(companions_of(stopped.run_dir));
  fs::remove(companions_of(stopped.run_dir) + ".json");
  fs::remove_all(tokenizer_);
  const std::string lines = warnings_of([&] { export_run(stopped.run_dir, directory_ / "without", {}); });
  EXPECT_NE(lines.find(tokenizer_ + " is gone"), std::string::npos) << lines;
}

TEST_F(ExportRun, OfDamagedCompanionsIsRefusedWithWhatHasThemStill) {
  TrainConfig c = config(), stopped = config("stopped");
  run_training(c, {});
  run_until(stopped, 1);
  const std::string name = "/tokenizer.json";
  const std::vector<std::function<void(const std::string&)>> damages = {
      [&](const std::string& kept) { write_bytes(kept + name, ""); },
      [&](const std::string& kept) {
        fs::remove(kept + name);
        fs::create_directory(kept + name);
      },
      [&](const std::string& kept) {
        fs::remove(kept + name);
        ASSERT_EQ(::mkfifo((kept + name).c_str(), 0600), 0);
      },
      [&](const std::string& kept) {
        fs::remove_all(kept);
        fs::create_directory(kept);
      },
      [&](const std::string& kept) {
        fs::remove_all(kept);
        write_bytes(kept, "a file");
      },
      [&](const std::string& kept) { write_bytes(kept + ".json", "{}"); }};
  for (const auto& damage : damages) {
    for (const TrainConfig* run : {&c, &stopped}) {
      const std::string kept = companions_of(run->run_dir), whole = directory_ / "whole", record = kept + ".json";
      fs::copy(kept, whole, fs::copy_options::recursive);
      const std::string text = read_bytes(record);
      damage(kept);
      const std::string still = run == &c ? c.run_dir + "/model" : "--resume";
      expect_error(ExitCode::io, {kept, still}, [&] { export_run(run->run_dir, directory_ / "out", {}); });
      EXPECT_FALSE(fs::exists(directory_ / "out"));
      fs::remove_all(kept);
      fs::rename(whole, kept);
      write_bytes(record, text);
    }
  }
  fs::remove_all(companions_of(c.run_dir));
  export_run(c.run_dir, directory_ / "out", {});
  EXPECT_EQ(files_in(directory_ / "out"), files_in(c.run_dir + "/model")) << "as the message advises";
  write_bytes(companions_of(stopped.run_dir) + name, "my own");
  fs::remove(companions_of(stopped.run_dir) + ".json");
  export_run(stopped.run_dir, directory_ / "changed", {});
  EXPECT_EQ(read_bytes(directory_ / "changed/tokenizer.json"), "my own");
}

TEST_F(ExportRun, OfAStoppedRunWhoseCompanionsAndTokenizerAreGoneAdvisesWhatWorks) {
  TrainConfig c = config();
  run_until(c, 1);
  const std::string kept = companions_of(c.run_dir), whole = directory_ / "whole";
  fs::rename(kept, whole);
  const auto refuse = [&](std::initializer_list<std::string> parts) {
    expect_error(ExitCode::io, parts, [&] { export_run(c.run_dir, directory_ / "out", {}); });
    EXPECT_FALSE(fs::exists(directory_ / "out"));
  };
  refuse({kept + " is gone", "--resume", "copies the files from " + tokenizer_});
  const std::string changing = tokenizer_ + "/tokenizer.json", original = read_bytes(changing);
  write_bytes(changing, original + "\n");
  refuse({kept + " is gone", "bring back the files of " + tokenizer_});
  write_bytes(changing, original);
  fs::rename(tokenizer_, directory_ / "elsewhere");
  refuse({kept + " is gone", "bring " + tokenizer_ + " back"});
  fs::create_directory(kept);
  refuse({kept, "bring " + tokenizer_ + " back"});
  fs::remove(kept);

  fs::rename(kept + ".json", directory_ / "record");
  export_run(c.run_dir, directory_ / "alone", {});
  EXPECT_FALSE(files_in(directory_ / "alone").contains("tokenizer.json")) << "weights alone, as the message advises";
  fs::rename(directory_ / "record", kept + ".json");

  fs::rename(directory_ / "elsewhere", tokenizer_);
  c.resume = true;
  run_training(c, {});
  EXPECT_EQ(files_in(kept), files_in(whole));
}

TEST_F(ExportRun, AdvisesToUseChangedCompanionsOnlyWhereAllAreThere) {
  TrainConfig c = config();
  run_until(c, 1);
  const std::string file = companions_of(c.run_dir) + "/tokenizer.json", advice = "files that you changed yourself";
  const auto said = [&] {
    try {
      export_run(c.run_dir, directory_ / "out", {});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  write_bytes(file, read_bytes(file) + "\n");
  EXPECT_NE(said().find(advice), std::string::npos) << said();
  fs::remove(file);
  EXPECT_NE(said().find("is gone"), std::string::npos) << said();
  EXPECT_EQ(said().find(advice), std::string::npos) << said();
}

TEST_F(ExportRun, CompanionsThatAreDamagedUnderARunAreWrittenAgainBeforeItsModelTakesThem) {
  TrainConfig c = config();
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics&) { write_bytes(companions_of(c.run_dir) + "/tokenizer.json", ""); };
  const std::string said = warnings_of([&] { run_training(c, hooks); });
  EXPECT_NE(said.find("companions/tokenizer.json is damaged"), std::string::npos) << said;
  for (const char* place : {"/model", "/companions"})
    EXPECT_EQ(read_bytes(c.run_dir + place + "/tokenizer.json"), read_bytes(tokenizer_ + "/tokenizer.json"));

  c.run_dir = directory_ / "gone";
  hooks.on_step = [&](const StepMetrics&) {
    write_bytes(companions_of(c.run_dir) + "/tokenizer.json", "");
    fs::remove_all(tokenizer_);
  };
  expect_error(ExitCode::io, {"companions/tokenizer.json", tokenizer_, "checkpoint of step 2"},
               [&] { run_training(c, hooks); });
  write_bytes(companions_of(c.run_dir) + "/tokenizer.json", "{\"this\": \"is tokenizer.json\"}");
  c.resume = true;
  run_training(c, {});
  EXPECT_TRUE(files_in(c.run_dir + "/model").contains("tokenizer.json"));
}

TEST_F(ExportRun, OfACompleteRunTakesNoDamagedFilesOfItsModelInPlaceOfItsCompanions) {
  TrainConfig c = config();
  c.checkpoint.every = 2;
  run_training(c, {});
  const std::string kept = companions_of(c.run_dir), file = c.run_dir + "/model/tokenizer.json";
  const auto refuse = [&](std::initializer_list<std::string> parts) {
    expect_error(ExitCode::io, parts, [&] { export_run(c.run_dir, directory_ / "out", {}); });
  };
  fs::remove(file);
  fs::remove(kept + "/tokenizer.json");
  refuse({kept + "/tokenizer.json is gone", "--resume"});
  fs::remove_all(kept);
  refuse({file + " is gone", "--resume"});
  fs::rename(tokenizer_, directory_ / "elsewhere");
  refuse({file + " is gone", "bring " + tokenizer_ + " back", "with the files that " + c.run_dir + "/model has now"});
  fs::remove(kept + ".json");
  export_run(c.run_dir, directory_ / "out", {});
  EXPECT_TRUE(files_in(directory_ / "out").contains("tokenizer_config.json")) << "as the message advises";
}

TEST_F(ExportRun, AModelWhoseTokenizerFilesWereChangedIsWarnedOfByNameWhenItIsChecked) {
  const TrainConfig c = config();
  run_training(c, {});
  const std::string model = c.run_dir + "/model", file = model + "/tokenizer.json", whole = read_bytes(file);
  const auto said = [&] { return warnings_of([&] { verify_model_of_run(model); }); };
  EXPECT_EQ(said(), "");
  std::string flipped = whole;
  flipped[flipped.size() / 2] ^= 1;
  write_bytes(file, flipped);
  EXPECT_NE(said().find(file + " is damaged"), std::string::npos) << said();
  fs::remove(file);
  EXPECT_NE(said().find(file + " is gone"), std::string::npos) << said();
  write_bytes(file, whole);
  EXPECT_EQ(said(), "");
}

TEST_F(ExportRun, CompanionsWithAFileOfTheUsersAreKeptAsideAndNotCalledAnothers) {
  TrainConfig c = config();
  run_until(c, 1);
  write_bytes(companions_of(c.run_dir) + "/notes.txt", "mine");
  c.resume = true;
  const std::string said = warnings_of([&] { run_training(c, {}); });
  EXPECT_NE(said.find("companions.previous now: it held files"), std::string::npos) << said;
  EXPECT_EQ(said.find("not written by this run"), std::string::npos) << said;
  EXPECT_EQ(read_bytes(companions_of(c.run_dir) + ".previous/notes.txt"), "mine");
}

TEST_F(ExportRun, AFileInPlaceOfTheCompanionsIsNamedByAResume) {
  TrainConfig c = config();
  run_until(c, 1);
  fs::remove_all(companions_of(c.run_dir));
  write_bytes(companions_of(c.run_dir), "a file");
  c.resume = true;
  expect_error(ExitCode::io, {companions_of(c.run_dir), "move it away"}, [&] { run_training(c, {}); });
  fs::remove(companions_of(c.run_dir));
  run_training(c, {});
}

}  // namespace megatrain
