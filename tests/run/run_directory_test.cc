// Who may write into a run directory, and what becomes of what was there.
#include "megatrain/run/run_directory.h"

#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <csignal>
#include <thread>

#include "megatrain/run/checkpoints.h"
#include "tests/hub/fixtures.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

void make_earlier_run(const std::string& path) {
  fs::create_directories(path);
  write_bytes(path + "/config.resolved.yaml", "steps: 1\n");
}

std::string own_pid() { return "pid " + std::to_string(::getpid()) + " on host "; }

}  // namespace

TEST(RunDirectory, ASecondOwnerIsRefusedWithPidAndHost) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  RunDirectory first(run, false);
  first.make();
  EXPECT_EQ(listing(run), (std::set<std::string>{"lock"}));
  expect_error(ExitCode::bad_config, {run, own_pid(), "--run_dir"}, [&] { RunDirectory(run, false).make(); });
  make_earlier_run(run);  // as the first now writes its own
  for (const bool resume : {false, true})
    expect_error(ExitCode::bad_config, {run, own_pid()}, [&] { RunDirectory second(run + "/", resume); });
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"run"}));
}

TEST(RunDirectory, TheLockGoesWithItsOwner) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  make_earlier_run(run);
  for (int round = 0; round < 2; ++round) {
    RunDirectory owner(run, true);
    owner.make();
    EXPECT_TRUE(fs::exists(run + "/lock"));
  }
  { const RunDirectory refused_later(run, false); }
  EXPECT_EQ(listing(run), (std::set<std::string>{"config.resolved.yaml"}));
}

TEST(RunDirectory, AKillReleasesTheLock) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    RunDirectory owner(run, false);
    owner.make();
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string pid = "pid " + std::to_string(child) + " on host ";
  expect_error(ExitCode::bad_config, {pid}, [&] { RunDirectory(run, true).make(); });
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(fs::exists(run + "/lock"));  // nothing could remove it
  RunDirectory next(run, true);
  next.make();
}

TEST(RunDirectory, AnEarlierRunIsMovedAsideWhenThisOneBeginsToWrite) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  make_earlier_run(run);
  make_earlier_run(run + ".1");
  RunDirectory owner(run, false);
  EXPECT_TRUE(fs::exists(run + "/config.resolved.yaml"));
  owner.make();
  EXPECT_EQ(listing(run), (std::set<std::string>{"lock"}));
  EXPECT_EQ(listing(run + ".2"), (std::set<std::string>{"config.resolved.yaml"}));
  expect_error(ExitCode::bad_config, {own_pid()}, [&] { RunDirectory(run, false).make(); });
}

TEST(RunDirectory, CheckpointsAloneAreAnEarlierRun) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  fs::create_directories(run + "/checkpoints/step-00000100");
  RunDirectory owner(run, false);
  owner.make();
  EXPECT_TRUE(list_checkpoints(run).empty());
  EXPECT_EQ(list_checkpoints(run + ".1").size(), 1u);
}

TEST(RunDirectory, OfManyThatStartAtOnceOneBecomesTheOwner) {
  constexpr int kStarts = 8, kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryDirectory directory;
    const std::string run = directory / "run";
    if (round % 2) make_earlier_run(run);
    std::atomic<int> owners = 0;
    std::barrier together(kStarts);
    std::vector<std::thread> starts;
    for (int i = 0; i < kStarts; ++i) {
      starts.emplace_back([&] {
        together.arrive_and_wait();
        std::optional<RunDirectory> owner;
        try {
          owner.emplace(run, false);
          owner->make();
          ++owners;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ExitCode::bad_config) << error.what();
          owner.reset();
        }
        together.arrive_and_wait();  // the owner stays it until all have tried
      });
    }
    for (std::thread& start : starts) start.join();
    EXPECT_EQ(owners, 1);
    EXPECT_EQ(fs::exists(run + ".1"), round % 2 == 1);
    EXPECT_FALSE(fs::exists(run + ".2"));
  }
}

TEST(RunDirectory, OneThatFoundNothingToGoOnFromDoesNotTakeAnothersRun) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  RunDirectory slow(run, true);
  make_earlier_run(run);  // by another that was faster, and has ended
  expect_error(ExitCode::bad_config, {run, "start it again"}, [&] { slow.make(); });
}

TEST(RunDirectory, WhatAKilledRunLeftHalfWrittenIsRemovedWithALine) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  make_earlier_run(run);
  for (const char* name : {"model.partial", "best.partial", "best.previous", "checkpoints/step-00000004.partial"})
    fs::create_directories(run + "/" + name);
  for (const char* name :
       {"model.partial/config.json", "model.partial/vocab.json.123-0.partial", "best.partial/model.safetensors.partial",
        "best.previous/config.json", "eval.jsonl.123-0.partial", "state-3.safetensors.partial"})
    write_bytes(run + "/" + name, "half");
  testing::internal::CaptureStderr();
  const RunDirectory owner(run, true);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* name : {"model.partial", "best.partial", "run/best is back", "eval.jsonl.123-0.partial",
                           "state-3.safetensors.partial", "step-00000004.partial"})
    EXPECT_NE(log.find(name), std::string::npos) << name << " in " << log;
  EXPECT_EQ(listing(run), (std::set<std::string>{"best", "checkpoints", "config.resolved.yaml", "lock"}));
  EXPECT_TRUE(listing(run + "/checkpoints").empty());
}

TEST(RunDirectory, FilesOfTheUserStayWhateverTheirEnding) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  make_earlier_run(run);
  const std::set<std::string> theirs = {"notes.partial", "notes.12-3.partial", "state-x.safetensors.partial",
                                        "model.safetensors.partial"};
  for (const std::string& name : theirs) write_bytes(run + "/" + name, "mine");
  { const RunDirectory owner(run, true); }
  for (const std::string& name : theirs) EXPECT_TRUE(fs::exists(run + "/" + name)) << name;
}

TEST(RunDirectory, OneWithNothingToGoOnFromIsMovedAsideWhole) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  make_earlier_run(run);
  RunDirectory owner(run, true);
  owner.start_over();
  owner.make();
  EXPECT_EQ(listing(run), (std::set<std::string>{"lock"}));
  EXPECT_EQ(listing(run + ".1"), (std::set<std::string>{"config.resolved.yaml"}));
}

TEST(RunDirectory, CheckpointsThatCannotBeReadAreNotNone) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run", folder = run + "/checkpoints";
  make_earlier_run(run);
  EXPECT_TRUE(list_checkpoints(run).empty());
  const auto refused = [&] {
    expect_error(ExitCode::io, {folder}, [&] { list_checkpoints(run); });
    expect_error(ExitCode::io, {folder}, [&] { const RunDirectory owner(run, true); });
  };
  fs::create_symlink("nowhere", folder);
  refused();
  fs::remove(folder);
  fs::create_symlink("checkpoints", folder);  // as root may read everything, a loop stands for what it may not
  refused();
  fs::remove(folder);
  write_bytes(folder, "a file");
  refused();
}

TEST(RunDirectory, OneThatIsMovedOrReplacedIsNoticed) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  RunDirectory owner(run, false);
  owner.make();
  owner.check_in_place();
  fs::rename(run, directory / "elsewhere");
  expect_error(ExitCode::io, {run, "moved or replaced"}, [&] { owner.check_in_place(); });
  make_earlier_run(run);  // another's
  expect_error(ExitCode::io, {run, "moved or replaced"}, [&] { owner.check_in_place(); });
  fs::remove_all(run);
  fs::rename(directory / "elsewhere", run);
  owner.check_in_place();
}

}  // namespace megatrain
