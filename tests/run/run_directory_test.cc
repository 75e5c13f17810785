// Who may write into a run directory, and what happens to its previous contents.
#include "megatrain/run/run_directory.h"

#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <csignal>
#include <thread>

#include "megatrain/run/checkpoints.h"
#include "megatrain/run/run_lock.h"
#include "tests/support/fixtures.h"

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
  make_earlier_run(run);  // as if the first process had now written its own
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

TEST(RunDirectory, WhoLooksAtTheLockKeepsNobodyOut) {
  const TemporaryDirectory directory;
  EXPECT_EQ(lock_state(directory.path()), LockState::absent);
  write_bytes(directory / "lock", "");
  EXPECT_EQ(lock_state(directory.path()), LockState::free);
  std::atomic<bool> stop{false};
  std::thread looks([&] {
    while (!stop) lock_state(directory.path());
  });
  for (int i = 0; i < 300; ++i) {
    RunLock lock;
    EXPECT_TRUE(lock.take(directory.path()));
    if (i % 100 == 0) {
      EXPECT_EQ(lock_state(directory.path()), LockState::held);
    }
  }
  stop = true;
  looks.join();
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
        together.arrive_and_wait();  // the owner keeps it until all have tried
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
  make_earlier_run(run);  // by another process, which was faster and has ended
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
  for (const char* name : {"model.partial", "best.partial", "run/best: an export", "eval.jsonl.123-0.partial",
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
  fs::create_symlink("checkpoints", folder);  // root can read everything, so a loop stands for a folder it cannot read
  refused();
  fs::remove(folder);
  write_bytes(folder, "a file");
  refused();
}

TEST(RunDirectory, TheKernelsOwnFileSystemsAreRefusedAtOnce) {
  for (const char* path : {"/proc/megatrain/run", "/sys/megatrain/run"})
    expect_error(ExitCode::io, {"could not create run_dir", path}, [&] { RunDirectory(path, false); });
}

TEST(RunDirectory, OneThatIsMovedOrReplacedIsNoticed) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  RunDirectory owner(run, false);
  owner.make();
  owner.check_in_place();
  fs::rename(run, directory / "elsewhere");
  expect_error(ExitCode::io, {run, "moved or replaced"}, [&] { owner.check_in_place(); });
  make_earlier_run(run);  // of another process
  expect_error(ExitCode::io, {run, "moved or replaced"}, [&] { owner.check_in_place(); });
  fs::remove_all(run);
  fs::rename(directory / "elsewhere", run);
  owner.check_in_place();
}

TEST(RunDirectory, AFolderThatIsNoRunIsRefusedByWhatIsInItAndLeftAlone) {
  const TemporaryDirectory directory;
  for (const char* name : {"eval.jsonl", "model", "lock", "live.json", "state-3.safetensors", "config.json"}) {
    const std::string run = directory / name + ".run";
    fs::create_directories(run);
    write_bytes(run + "/" + name, "mine");
    for (const bool resume : {false, true})
      expect_error(ExitCode::bad_config, {run, name, "not a megatrain run", "--run_dir"},
                   [&] { RunDirectory(run, resume).make(); });
    EXPECT_EQ(listing(run), (std::set<std::string>{name}));
    EXPECT_EQ(read_bytes(run + "/" + name), "mine");
  }
}

TEST(RunDirectory, AFolderWithMuchInItNamesThreeOfThem) {
  const TemporaryDirectory directory;
  for (const char* name : {"a", "b", "c", "d", "e"}) fs::create_directory(directory / name);
  expect_error(ExitCode::bad_config, {R"("a", "b", "c" and 2 more)"}, [&] { RunDirectory(directory.path(), false); });
}

TEST(RunDirectory, PlainFilesAndWhatARunThatDiedEarlyLeftAreNoObstacle) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  fs::create_directories(run + "/lost+found");
  fs::create_directories(run + "/model.partial");
  write_bytes(run + "/lock", R"({"host":"h","pid":1,"since":"2026-01-01T00:00:00Z"})");
  write_bytes(run + "/config.resolved.yaml.12-0.partial", "half");
  for (const char* name : {".gitkeep", "train.log", "slurm-12.out", "train.yaml"}) write_bytes(run + "/" + name, "");
  RunDirectory owner(run, false);
  owner.make();
  EXPECT_FALSE(fs::exists(run + ".1"));
}

TEST(RunDirectory, DataOfTheRunMayLieInItUnlessTheirNameIsTheRuns) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  fs::create_directories(run + "/data/deep");
  write_bytes(run + "/data/deep/train.jsonl", "");
  write_bytes(run + "/tokens.bin", "");
  const std::vector<std::string> inputs = {"", run + "/tokens.bin", run + "/data/deep/train.jsonl",
                                           run + "/samples.jsonl"};
  { RunDirectory(run, false, inputs).make(); }
  write_bytes(run + "/samples.jsonl", "{}");
  expect_error(ExitCode::bad_config, {"samples.jsonl"}, [&] { RunDirectory(run, false, inputs); });
}

TEST(RunDirectory, WhatALinkLeadsToIsMovedBesideItsPlaceAndTheLinkStays) {
  const TemporaryDirectory directory;
  const std::string real = directory / "disk/real", link = directory / "link";
  make_earlier_run(real);
  fs::create_directories(real + "/checkpoints/step-00000001");
  fs::create_directory_symlink(real, link);
  RunDirectory owner(link, false);
  testing::internal::CaptureStderr();
  owner.make();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--run_dir=" + real + ".1 resumes it"), std::string::npos);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(listing(real), (std::set<std::string>{"lock"}));
  EXPECT_EQ(listing(real + ".1"), (std::set<std::string>{"checkpoints", "config.resolved.yaml"}));
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"disk", "link"}));
}

TEST(RunDirectory, ALinkThatLeadsNowhereIsRefusedAtOnce) {
  const TemporaryDirectory directory;
  fs::create_directory_symlink("nowhere", directory / "link");
  for (const char* name : {"link", "link/run"})
    expect_error(ExitCode::io, {"could not create run_dir", "/link is a link that leads nowhere"},
                 [&] { RunDirectory(directory / name, false); });
}

TEST(RunDirectory, AnEarlierRunInTheWorkingDirectoryIsRefusedBeforeAnythingIsLoaded) {
  const TemporaryDirectory directory;
  make_earlier_run(directory / "run/inner");
  make_earlier_run(directory / "run");
  const fs::path before = fs::current_path();
  fs::current_path(directory / "run");
  expect_error(ExitCode::bad_config, {"started in it", "--run_dir", "--resume"}, [] { RunDirectory(".", false); });
  { const RunDirectory goes_on(".", true); }
  RunDirectory(directory / "run/inner/.", false).make();
  fs::current_path(directory / "run/inner");
  expect_error(ExitCode::bad_config, {"started inside it"}, [] { RunDirectory("..", false); });
  fs::current_path(before);
  EXPECT_EQ(listing(directory / "run"), (std::set<std::string>{"config.resolved.yaml", "inner", "inner.1"}));
}

TEST(RunDirectory, WhatARunThatDiedAtItsStartLeftIsGoneWhenTheNextOneStarts) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  fs::create_directories(run);
  write_bytes(run + "/config.resolved.yaml.123-0.partial", "steps: 1");
  write_bytes(run + "/notes.123-0.partial", "not the run's");
  RunDirectory owner(run, false);
  owner.make();
  EXPECT_EQ(listing(run), (std::set<std::string>{"lock", "notes.123-0.partial"}));
}

}  // namespace megatrain
