#include "megatrain/watch/alerts.h"

#include <ctime>

#include "megatrain/watch/alert_command.h"
#include "megatrain/watch/watcher.h"
#include "tests/support/places.h"
#include "tests/watch/made_run.h"

namespace megatrain {

namespace {

constexpr int64_t kRoom = int64_t{100} << 30;

Names kinds(const std::vector<Alert>& alerts) {
  Names names;
  for (const Alert& alert : alerts) names.push_back(alert.kind);
  return names;
}

}  // namespace

// The losses of a model that has learnt nearly everything there is.
TEST(Alerts, AreSilentAboutTwiceALossNearZero) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 60; ++step) made.step(step, 0.01 + 0.0001 * static_cast<double>(step % 3));
  made.step(61, 0.08);
  RunFollower run(made.path());
  run.poll(101);
  EXPECT_TRUE(Alerts({}).look(run, 101, kRoom).empty());
}

TEST(Alerts, TellAJumpOfTheLossOnceAndNoNoise) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 60; ++step)
    made.step(step, 3 + (step % 2 ? 0.2 : -0.2) - 0.02 * static_cast<double>(step));
  RunFollower run(made.path());
  Alerts alerts({});
  run.poll(101);
  EXPECT_TRUE(alerts.look(run, 101, kRoom).empty());
  made.step(61, 9.5);
  made.step(62, 9.0);
  run.poll(102);
  const std::vector<Alert> raised = alerts.look(run, 102, kRoom);
  ASSERT_EQ(kinds(raised), Names{"loss_spike"});
  EXPECT_EQ(raised[0].step, 61);
  EXPECT_TRUE(alerts.look(run, 103, kRoom).empty());
  Alerts never({.spike = 0});
  EXPECT_TRUE(never.look(run, 103, kRoom).empty());
  EXPECT_EQ(to_json(raised[0], "runs/a").at("alert"), "loss_spike");
}

TEST(Alerts, TellARunThatDivergesByTheRuleOfTheRunItself) {
  const MadeRun made;
  made.live(100);
  for (int64_t step = 1; step <= 3; ++step) made.step(step, 3);
  made.step(4, 257807);
  write_bytes(made.path() + "/model_config.json",
              read_bytes(in_repository("tests/parity/goldens/llama_linear/model/config.json")));
  RunFollower run(made.path());
  run.poll(101);
  const std::vector<Alert> raised = Alerts({}).look(run, 101, kRoom);
  ASSERT_EQ(kinds(raised), Names{"divergence"});
  EXPECT_EQ(raised[0].step, 4);
}

TEST(Alerts, TellARisingEvaluationLossOnceAndAgainAfterANewLowest) {
  const MadeRun made;
  made.live(100);
  RunFollower run(made.path());
  Alerts alerts({});
  int64_t step = 0;
  const auto evaluate = [&](double loss) {
    step += 10;
    made.live(100 + static_cast<double>(step));
    made.append("eval.jsonl", fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, loss));
    run.poll(100 + static_cast<double>(step));
    return kinds(alerts.look(run, 100 + static_cast<double>(step), kRoom));
  };
  for (const double loss : {2.5, 2.0, 2.2}) EXPECT_EQ(evaluate(loss), Names{});
  EXPECT_EQ(evaluate(2.3), Names{"eval_rise"});
  EXPECT_EQ(evaluate(2.4), Names{});
  for (const double loss : {1.9, 2.0}) EXPECT_EQ(evaluate(loss), Names{});
  EXPECT_EQ(evaluate(2.1), Names{"eval_rise"});
  EXPECT_EQ(kinds(Alerts({}).look(run, 100 + static_cast<double>(step), kRoom)), (Names{"eval_rise", "eval_rise"}))
      << "of a run that began before";
}

TEST(Alerts, TellADiskAndAMemoryThatFillUpOnceUntilItIsOver) {
  const MadeRun made;
  RunFollower run(made.path());
  Alerts alerts({.disk_bytes = 1000});
  const auto memory = [](double available) {
    return nlohmann::json{{"memory", {{"host", {{"available", available}, {"limit", 1000.0}}}}}};
  };
  made.live(100, "running", ::getpid(), memory(500));
  run.poll(101);
  EXPECT_TRUE(alerts.look(run, 101, 1000).empty());
  EXPECT_EQ(kinds(alerts.look(run, 102, 999)), Names{"disk"});
  EXPECT_TRUE(alerts.look(run, 103, 998).empty());
  EXPECT_TRUE(alerts.look(run, 104, 2000).empty());
  EXPECT_EQ(kinds(alerts.look(run, 105, 10)), Names{"disk"});
  made.live(106, "running", ::getpid(), memory(20));
  run.poll(107);
  EXPECT_EQ(kinds(alerts.look(run, 107, 2000)), Names{"memory"});
}

TEST(Alerts, TellARunThatStandsStillButNotOneThatWorks) {
  const MadeRun made;
  made.step(1, 4);
  RunFollower run(made.path());
  Alerts alerts({});
  double now = 100;
  std::string sentence;
  const auto pass = [&](double seconds, const std::string& doing) {
    now += seconds;
    made.live(now, "running", ::getpid(), {{"doing", doing}});
    run.poll(now);
    const std::vector<Alert> raised = alerts.look(run, now, kRoom);
    if (!raised.empty()) sentence = raised.front().message;
    return kinds(raised);
  };
  EXPECT_TRUE(pass(1, "step 2").empty());
  EXPECT_TRUE(pass(119, "step 2").empty());
  EXPECT_TRUE(pass(100, "the checkpoint of step 2").empty()) << "it does something else";
  EXPECT_EQ(pass(121, "the checkpoint of step 2"), Names{"stall"});
  EXPECT_TRUE(pass(10, "the checkpoint of step 2").empty());
  made.step(2, 4);
  EXPECT_TRUE(pass(10, "step 3").empty());
  EXPECT_EQ(pass(130, "step 3"), Names{"stall"});
  EXPECT_NE(sentence.find("since step 2; the run is in step 3"), std::string::npos) << sentence;
}

TEST(Alerts, TellABadEndAndNotAGoodOne) {
  const MadeRun made;
  RunFollower run(made.path());
  Alerts alerts({});
  const auto end = [&](double now, const std::string& state, int code) {
    made.live(now, state, ::getpid(), {{"exit_code", code}, {"message", "why"}});
    run.poll(now);
    return kinds(alerts.look(run, now, kRoom));
  };
  EXPECT_TRUE(end(100, "stopped", 130).empty());
  EXPECT_TRUE(end(101, "complete", 0).empty());
  EXPECT_EQ(end(102, "failed", 6), Names{"non_finite"});
  EXPECT_TRUE(end(103, "failed", 6).empty());
  EXPECT_TRUE(end(104, "running", 0).empty());
  EXPECT_EQ(end(105, "failed", 5), Names{"ended"});
}

TEST(Alerts, TellARunDirectoryThatIsGone) {
  const MadeRun made;
  const std::string away = made.path() + "-away";
  RunFollower run(away), moved(made.path());
  Alerts of_none({}), alerts({});
  run.poll(100);
  EXPECT_TRUE(of_none.look(run, 100, kRoom).empty()) << "it was never there";
  made.live(100, "failed", ::getpid(), {{"exit_code", 5}, {"message", "why"}});
  made.step(7, 4);
  std::vector<Alert> raised;
  const auto look = [&](double now) {
    moved.poll(now);
    return kinds(raised = alerts.look(moved, now, kRoom));
  };
  EXPECT_EQ(look(101), Names{"ended"});
  std::filesystem::rename(made.path(), away);
  EXPECT_EQ(look(102), Names{"gone"});
  EXPECT_EQ(raised.at(0).step, 7) << "the last that was read";
  EXPECT_TRUE(look(103).empty());
  std::filesystem::rename(away, made.path());
  EXPECT_TRUE(look(104).empty()) << "its end was told";
}

TEST(AlertCommand, GetsTheAlertOnItsInputAndNothingOfItInItsText) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  const Alert alert{"ended", 3, "$(touch " + (directory / "made") + ") `id` '; exit 3 #\n"};
  const std::string text = to_json(alert, "a run'\"").dump();
  AlertCommand command("cat > " + out, true);
  command.run(text);
  while (command.running() > 0) command.reap();
  EXPECT_EQ(nlohmann::json::parse(read_bytes(out)).at("message"), alert.message);
  EXPECT_FALSE(std::filesystem::exists(directory / "made"));
  AlertCommand none("", true);
  none.run(text);
  EXPECT_EQ(none.running(), 0u);
}

TEST(AlertCommand, IsRunOnceForAShortageThatWasThereBeforeTheWatch) {
  const MadeRun made;
  made.step(1, 2.0);
  made.live(static_cast<double>(std::time(nullptr)));
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  Watcher watcher({made.path()}, {.disk_bytes = INT64_MAX}, AlertCommand("cat >> " + out, true));
  for (int i = 0; i < 3; ++i) watcher.poll();
  const auto told = [&] { return std::filesystem::exists(out) && read_bytes(out).ends_with("\n"); };
  for (const std::time_t start = std::time(nullptr); !told() && std::time(nullptr) < start + 20;) watcher.poll();
  ASSERT_TRUE(told());
  EXPECT_EQ(nlohmann::json::parse(read_bytes(out)).at("alert"), "disk");
}

TEST(AlertCommand, IsNeverWaitedForAndBoundedInNumber) {
  AlertCommand command("read line; kill -STOP $$", true);  // stops itself, and so runs until it is killed
  for (int i = 0; i < 20; ++i) command.run("{}");
  EXPECT_EQ(command.running(), 8u);
  EXPECT_EQ(::system("exit 0"), 0);  // this process continues
  for (const pid_t child : command.children()) ::kill(child, SIGKILL);
  while (command.running() > 0) command.reap();
}

}  // namespace megatrain
