#include "megatrain/watch/run_follower.h"

#include <sys/wait.h>

#include "megatrain/run/run_lock.h"
#include "tests/watch/made_run.h"

namespace megatrain {

namespace {

pid_t pid_that_is_gone() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

}  // namespace

TEST(LineTail, GivesWholeLinesOnceAndTellsAFileThatWasCutReplacedOrRewritten) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lines";
  LineTail tail(path);
  EXPECT_TRUE(tail.poll().lines.empty());
  write_bytes(path, "one\ntw");
  EXPECT_EQ(tail.poll().lines, Names{"one"});
  EXPECT_TRUE(tail.poll().lines.empty());
  std::ofstream(path, std::ios::app) << "o\nthree\n";
  LineTail::News news = tail.poll();
  EXPECT_EQ(news.lines, (Names{"two", "three"}));
  EXPECT_FALSE(news.replaced);
  std::filesystem::resize_file(path, 4);
  news = tail.poll();
  EXPECT_TRUE(news.replaced);
  EXPECT_EQ(news.lines, Names{"one"});
  write_bytes(directory / "other", "four\nfive\n");
  std::filesystem::rename(directory / "other", path);
  news = tail.poll();
  EXPECT_TRUE(news.replaced);
  EXPECT_EQ(news.lines, (Names{"four", "five"}));
  write_bytes(path, "fore\nfile\nsix\n");  // the same inode, as may happen after a file is removed
  news = tail.poll();
  EXPECT_TRUE(news.replaced);
  EXPECT_EQ(news.lines, (Names{"fore", "file", "six"}));
}

TEST(LineTail, AFileThatIsAwayForAWhileGoesOnWhereItWas) {
  const TemporaryDirectory directory;
  const std::string path = directory / "lines";
  LineTail tail(path);
  write_bytes(path, "one\ntwo\n");
  EXPECT_EQ(tail.poll().lines, (Names{"one", "two"}));
  std::filesystem::rename(path, directory / "away");
  LineTail::News news = tail.poll();
  EXPECT_FALSE(news.replaced);
  EXPECT_TRUE(news.lines.empty());
  std::filesystem::rename(directory / "away", path);
  std::ofstream(path, std::ios::app) << "three\n";
  news = tail.poll();
  EXPECT_FALSE(news.replaced);
  EXPECT_EQ(news.lines, Names{"three"});
}

TEST(RunFollower, WaitsForARunThatIsNotThere) {
  const TemporaryDirectory directory;
  RunFollower run(directory / "later");
  EXPECT_TRUE(events_of(run, 100).empty());
  EXPECT_EQ(run.phase(), RunPhase::absent);
  std::filesystem::create_directory(directory / "later");
  EXPECT_TRUE(events_of(run, 101).empty());
  write_bytes(directory / "later" + "/config.resolved.yaml", "steps: 4\n");
  RunLock lock;
  ASSERT_TRUE(lock.take(directory / "later"));
  EXPECT_EQ(names_of(events_of(run, 102)), Names{"state 0"});
  EXPECT_EQ(run.phase(), RunPhase::running);
}

TEST(RunFollower, TellsStepsEvaluationsAndSamplesAsTheyCome) {
  const MadeRun made;
  made.live(100);
  made.step(1, 4);
  RunFollower run(made.path() + "/");
  EXPECT_EQ(names_of(events_of(run, 101)), (Names{"step 1", "state 1"}));
  made.step(2, 3);
  made.append("metrics.jsonl", "{\"step\": 3, \"lo");
  made.append("eval.jsonl", "{\"step\":2,\"loss\":2.5,\"tokens\":9}\n");
  made.append("samples.jsonl", "{\"step\":2,\"prompt\":\"a\",\"text\":\"b\"}\n");
  const std::vector<RunEvent> events = events_of(run, 102);
  EXPECT_EQ(names_of(events), (Names{"step 2", "evaluation 2", "sample 2"}));
  EXPECT_EQ(events[0].at("loss"), 3);
  EXPECT_EQ(events[0].at("run"), made.path());
  EXPECT_TRUE(events_of(run, 103).empty());
  EXPECT_EQ(run.state().at("step"), 2);
  EXPECT_EQ(run.state().at("steps"), 100);
  EXPECT_EQ(run.state().at("evaluation_loss"), 2.5);
  EXPECT_NEAR(run.seconds_left(), 98 * 0.5, 1e-9);
}

TEST(RunFollower, TheTimeLeftKnowsPausesAndForgetsAnHourOfBeingSuspended) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 3; ++step) made.step(step, 4);
  made.append("metrics.jsonl", step_line(4, 4, 3600).dump() + "\n");
  RunFollower run(made.path());
  run.poll(101);
  EXPECT_NEAR(run.seconds_left(), 96 * 0.5, 1e-9);
  RunEvent saved = step_line(5, 4, 10.5);
  saved["paused_s"] = 10.0;  // in five steps
  made.append("metrics.jsonl", saved.dump() + "\n");
  run.poll(102);
  EXPECT_NEAR(run.seconds_left(), 95 * 2.5, 1e-9);
}

TEST(RunFollower, LeavesDamagedLinesOutAndCountsThem) {
  const MadeRun made;
  made.live(100);
  made.step(1, 4);
  made.append("metrics.jsonl", "{\"step\": 2, \"loss\"\n[]\n\xff\xfe\n{\"step\": 2}\n");
  made.step(3, 2);
  RunFollower run(made.path());
  EXPECT_EQ(names_of(events_of(run, 101)), (Names{"step 1", "step 3", "state 3"}));
  EXPECT_EQ(run.damaged_lines(), 4);
  for (const char* text : {"", "[", "{\"lanes\": 3, \"memory\": [], \"state\": {}, \"written\": \"x\"}", "7"}) {
    write_bytes(made.path() + "/live.json", text);
    run.poll(102);
  }
}

TEST(RunFollower, OfAResumedRunTellsWhereItWentBackToAndOnlyWhatIsNew) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 4; ++step) made.step(step, 5.0 - static_cast<double>(step));
  for (const int64_t step : {2, 4}) made.append("eval.jsonl", fmt::format("{{\"step\":{},\"loss\":1.5}}\n", step));
  RunFollower run(made.path());
  run.poll(101);
  // as keep_lines_up_to leaves them, then one more step
  std::filesystem::rename(made.path() + "/metrics.jsonl", made.path() + "/former");
  for (int64_t step = 1; step <= 2; ++step) made.step(step, 5.0 - static_cast<double>(step));
  made.append("metrics.jsonl", step_line(3, 2.0, 0.75).dump() + "\n");
  std::filesystem::rename(made.path() + "/eval.jsonl", made.path() + "/former evaluations");
  for (const int64_t step : {2, 4}) made.append("eval.jsonl", fmt::format("{{\"step\":{},\"loss\":1.5}}\n", step));
  EXPECT_EQ(names_of(events_of(run, 102)), (Names{"back 2", "step 3", "evaluation 4"}));
  EXPECT_EQ(run.data().history.steps.size(), 3u);
  EXPECT_EQ(run.data().history.evaluations.size(), 2u);
  EXPECT_EQ(run.times_back(), 1);
}

TEST(RunFollower, OfARunThatWasAwayTellsOnlyWhatIsNewAndGoesBackOnlyForAnother) {
  const MadeRun made;
  const std::string away = made.path() + "-away";
  made.live(100);
  made.append("metrics.jsonl", "{\"step\":1,\"eval_loss\":3.5}\n");
  for (int64_t step = 1; step <= 3; ++step) made.step(step, 5.0 - static_cast<double>(step));
  made.append("eval.jsonl", "{\"step\":2,\"loss\":2.5}\n");
  made.append("samples.jsonl", "{\"step\":2,\"prompt\":\"a\",\"text\":\"b\"}\n");
  RunFollower run(made.path());
  EXPECT_EQ(events_of(run, 101).size(), 7u);
  std::filesystem::rename(made.path(), away);
  EXPECT_EQ(names_of(events_of(run, 102)), Names{"state 3"});
  EXPECT_EQ(run.phase(), RunPhase::absent);
  EXPECT_EQ(run.state().at("step"), 3);
  EXPECT_EQ(run.state().at("evaluation_loss"), 2.5);
  std::filesystem::rename(away, made.path());
  made.step(4, 1);
  EXPECT_EQ(names_of(events_of(run, 103)), (Names{"step 4", "state 4"}));
  // only its metrics disappear for a while
  std::filesystem::rename(made.path() + "/metrics.jsonl", away);
  EXPECT_TRUE(events_of(run, 104).empty());
  std::filesystem::rename(away, made.path() + "/metrics.jsonl");
  EXPECT_TRUE(events_of(run, 105).empty());
  // it is replaced by a copy
  std::filesystem::copy(made.path(), away, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(made.path());
  EXPECT_EQ(names_of(events_of(run, 106)), Names{"state 4"});
  std::filesystem::rename(away, made.path());
  made.step(5, 0.5);
  EXPECT_EQ(names_of(events_of(run, 107)), (Names{"step 5", "state 5"}));
  EXPECT_EQ(run.data().history.steps.size(), 5u);
  EXPECT_EQ(run.data().history.evaluations.size(), 2u);
  EXPECT_EQ(run.data().history.samples.size(), 1u);
  EXPECT_EQ(run.times_back(), 0);
  // another run takes its place
  std::filesystem::remove(made.path() + "/metrics.jsonl");
  EXPECT_TRUE(events_of(run, 108).empty());
  for (int64_t step = 1; step <= 9; ++step) made.step(step, 7);
  const Names names = names_of(events_of(run, 109));
  ASSERT_GE(names.size(), 10u);
  EXPECT_EQ(names[0], "back 0");
  EXPECT_EQ(names[1], "step 1");
  EXPECT_EQ(names[9], "step 9");
  EXPECT_EQ(run.times_back(), 1);
}

TEST(RunFollower, KnowsHowARunEnded) {
  const MadeRun made;
  RunFollower run(made.path());
  made.live(100);
  run.poll(100.5);
  EXPECT_EQ(run.phase(), RunPhase::running);
  made.live(102, "stopped", ::getpid(), {{"exit_code", 143}});
  EXPECT_EQ(run.poll(103).at("exit_code"), 143);
  EXPECT_EQ(run.phase(), RunPhase::stopped);
  made.live(104, "failed", ::getpid(), {{"exit_code", 6}, {"message", "the loss is NaN"}});
  run.poll(105);
  EXPECT_EQ(run.exit_code(), 6);
  EXPECT_EQ(run.message(), "the loss is NaN");
  made.live(106, "complete", ::getpid(), {{"exit_code", 0}});
  run.poll(107);
  EXPECT_EQ(run.phase(), RunPhase::complete);
  EXPECT_EQ(run.exit_code(), 0);
}

TEST(RunFollower, ARunThatIsSilentOrWhoseProcessIsGoneWasKilled) {
  const MadeRun made;
  const pid_t gone = pid_that_is_gone();
  made.live(100, "running", gone, {{"host", "another.host"}});
  RunFollower run(made.path());
  run.poll(107);
  EXPECT_EQ(run.phase(), RunPhase::running) << "that process cannot be seen from here";
  made.live(107, "running", gone);
  run.poll(107.5);
  EXPECT_EQ(run.phase(), RunPhase::killed);
  EXPECT_EQ(run.exit_code(), 137);
  made.live(108);
  run.poll(109);
  EXPECT_EQ(run.phase(), RunPhase::running);
  run.poll(130);
  EXPECT_EQ(run.phase(), RunPhase::running) << "its process is there";
  run.poll(150);
  EXPECT_EQ(run.phase(), RunPhase::killed);
  RunFollower late(made.path());
  late.poll(1000);
  EXPECT_EQ(late.phase(), RunPhase::killed) << "the file was old when it was first seen";
}

TEST(RunFollower, TheLockTellsAtOnceWhetherARunGoes) {
  const MadeRun made;
  RunFollower run(made.path());
  {
    RunLock lock;
    ASSERT_TRUE(lock.take(made.path()));
    made.live(100, "running", pid_that_is_gone());
    run.poll(100.1);
    EXPECT_EQ(run.phase(), RunPhase::running) << "its process may be of another container";
    EXPECT_EQ(run.state().at("doing"), "step 3");
    run.poll(1000);
    EXPECT_EQ(run.phase(), RunPhase::running) << "a process that hangs is no dead one";
    made.live(1001, "failed");
    run.poll(1002);
    EXPECT_EQ(run.phase(), RunPhase::running) << "it is being resumed";
  }
  // as left by a kill
  write_bytes(made.path() + "/lock", fmt::format("{{\"pid\":{},\"host\":\"\"}}", ::getpid()));
  made.live(1003);
  run.poll(1003.1);
  EXPECT_EQ(run.phase(), RunPhase::killed);
  EXPECT_EQ(run.state().at("doing"), "") << "it does nothing any more";
}

TEST(RunFollower, ARunWithoutALiveFileThatRemovedItsLockWasStoppedAndNotKilled) {
  const MadeRun made;
  made.step(1, 4);
  RunFollower run(made.path());
  run.poll(100);
  EXPECT_EQ(run.phase(), RunPhase::stopped);
  EXPECT_NE(run.message().find("no checkpoint, so start it again"), std::string::npos) << run.message();
  std::filesystem::create_directories(made.path() + "/checkpoints/step-00000004");
  run.poll(100.5);
  EXPECT_NE(
      run.message().find(fmt::format(
          "of step 4: resume with 'megatrain train {0}/config.resolved.yaml --resume --run_dir={0}'", made.path())),
      std::string::npos)
      << run.message();
  write_bytes(made.path() + "/lock", "");
  run.poll(101);
  EXPECT_EQ(run.phase(), RunPhase::killed);
}

}  // namespace megatrain
