#include "megatrain/run/run_log.h"

#include "megatrain/io/json.h"
#include "tests/run/event_records.h"
#include "tests/support/said.h"

namespace megatrain {

namespace {

StepMetrics metrics_of(int64_t step, double loss) {
  StepMetrics m{.step = step, .steps = 10, .lr = 1e-3};
  m.report.loss = loss;
  m.report.grad_norm = 0.25;
  m.report.tokens = 128;
  m.report.seconds = 0.5;
  return m;
}

// The scalars of a tag that remain for a reader of all files in order. As in TensorBoard, every start event but the
// first drops its step and all later ones.
std::map<int64_t, float> believed(const std::string& run, const std::string& tag) {
  std::map<int64_t, float> values;
  bool started = false;
  for (const std::string& name : listing(run + "/tensorboard")) {
    for (const ReadEvent& event : read_events(run + "/tensorboard/" + name)) {
      if (event.start && started) values.erase(values.lower_bound(event.step), values.end());
      started = started || event.start;
      if (event.tag == tag) values[event.step] = event.value;
    }
  }
  return values;
}

}  // namespace

TEST(RunLog, TellsMetricsFileAndTensorBoardTheSame) {
  const TemporaryDirectory run;
  RunLog log(run.path(), 0, 10, false);
  log.step(metrics_of(1, 3.5));
  log.step(metrics_of(2, 3.25));
  log.add_scalar("eval/loss", 2, 3.0);
  EXPECT_EQ(read_bytes(run / "metrics.jsonl"),
            metrics_json(metrics_of(1, 3.5)) + "\n" + metrics_json(metrics_of(2, 3.25)) + "\n");
  EXPECT_EQ(believed(run.path(), "train/loss"), (std::map<int64_t, float>{{1, 3.5f}, {2, 3.25f}}));
  EXPECT_EQ(believed(run.path(), "train/grad_norm"), (std::map<int64_t, float>{{1, 0.25f}, {2, 0.25f}}));
  EXPECT_EQ(believed(run.path(), "train/lr"), (std::map<int64_t, float>{{1, 1e-3f}, {2, 1e-3f}}));
  EXPECT_EQ(believed(run.path(), "train/tokens_per_s"), (std::map<int64_t, float>{{1, 256.f}, {2, 256.f}}));
  EXPECT_EQ(believed(run.path(), "eval/loss"), (std::map<int64_t, float>{{2, 3.0f}}));
}

TEST(RunLog, ResumedForgetsLaterStepsEverywhere) {
  const TemporaryDirectory run;
  {
    RunLog log(run.path(), 0, 10, false);
    for (int64_t step = 1; step <= 5; ++step) log.step(metrics_of(step, 10.0 - static_cast<double>(step)));
    write_bytes(run / "eval.jsonl", "{\"step\":2,\"loss\":1.0}\n{\"step\":4,\"loss\":0.5}\n");
    write_bytes(run / "samples.jsonl", "{\"step\":5,\"prompt\":\"a\",\"text\":\"b\"}\n");
  }
  RunLog log(run.path(), 3, 10, true);
  log.step(metrics_of(4, 1.0));
  EXPECT_EQ(believed(run.path(), "train/loss"), (std::map<int64_t, float>{{1, 9.f}, {2, 8.f}, {3, 7.f}, {4, 1.f}}));
  std::vector<int64_t> steps;
  std::istringstream lines(read_bytes(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) steps.push_back(nlohmann::json::parse(line).at("step"));
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(read_bytes(run / "eval.jsonl"), "{\"step\":2,\"loss\":1.0}\n");
  EXPECT_EQ(read_bytes(run / "samples.jsonl"), "");
}

TEST(RunLog, ResumedWithoutALineOfEveryFileThatIsNoRecordOfIt) {
  const TemporaryDirectory run;
  const std::string metrics = metrics_json(metrics_of(1, 3.5)) + "\n", bad = "{\"step\":1}\n",
                    evaluation = "{\"step\":1,\"loss\":1.0}\n",
                    sample = "{\"step\":1,\"prompt\":\"a\",\"text\":\"b\"}\n";
  write_bytes(run / "metrics.jsonl", bad + metrics + metrics);
  write_bytes(run / "eval.jsonl", evaluation + bad + evaluation);
  write_bytes(run / "samples.jsonl", sample + sample + bad + sample);
  const std::string said = logged_by([&] { RunLog(run.path(), 1, 10, true); });
  EXPECT_EQ(read_bytes(run / "metrics.jsonl"), metrics);
  EXPECT_EQ(read_bytes(run / "eval.jsonl"), evaluation);
  EXPECT_EQ(read_bytes(run / "samples.jsonl"), sample + sample + sample) << "a step has several answers";
  for (const char* place :
       {"metrics.jsonl:1:", "metrics.jsonl:3:", "eval.jsonl:2:", "eval.jsonl:3:", "samples.jsonl:3:"})
    EXPECT_NE(said.find(place), std::string::npos) << place << " in " << said;
  for (const char* name : {"metrics.jsonl", "eval.jsonl", "samples.jsonl"})
    EXPECT_TRUE(std::filesystem::exists(run / (std::string(name) + ".damaged"))) << name;
}

TEST(RunLog, ResumedBehindStepsThatTheMetricsLackSaysSoOnce) {
  const TemporaryDirectory run;
  const auto said = [&] { return logged_by([&] { RunLog(run.path(), 3, 10, true); }); };
  EXPECT_NE(said().find("metrics.jsonl has no step"), std::string::npos);
  std::string text = metrics_json(metrics_of(1, 3.5)) + "\n" + metrics_json(metrics_of(2, 3.5)) + "\n";
  write_bytes(run / "metrics.jsonl", text);
  EXPECT_NE(said().find("metrics.jsonl ends at step 2"), std::string::npos);
  write_bytes(run / "metrics.jsonl", text + metrics_json(metrics_of(3, 3.5)) + "\n");
  EXPECT_EQ(said(), "");
}

TEST(RunLog, ShowsTheLanesOfTheThirdStepOrTheLast) {
  const TemporaryDirectory a, b, c;
  EXPECT_TRUE(RunLog(a.path(), 0, 10, false).shows_lanes(3));
  EXPECT_FALSE(RunLog(a.path(), 0, 10, false).shows_lanes(1));
  EXPECT_TRUE(RunLog(b.path(), 0, 2, false).shows_lanes(2));
  EXPECT_TRUE(RunLog(c.path(), 5, 10, true).shows_lanes(8));
}

TEST(RunLog, JoinsMicroBatchesWhenLanesWouldBeTooMany) {
  const TemporaryDirectory run;
  const Action forward{.kind = ActionKind::forward, .lane = Lane::compute, .record = 1},
      backward{.kind = ActionKind::backward, .lane = Lane::compute, .record = 1},
      fetch{.kind = ActionKind::fetch_weights, .lane = Lane::h2d, .record = 2};
  std::vector<Span> spans;
  for (int i = 0; i < 30000; ++i) {
    spans.push_back({i < 20000 ? &forward : &backward, i * 1e-3, (i + 1) * 1e-3, 1});
    if (i == 7) spans.push_back({&fetch, 0.5, 0.75, 2});
  }
  RunLog log(run.path(), 0, 3, false);
  log.lanes(3, spans);
  const nlohmann::json events = nlohmann::json::parse(read_bytes(run / "lanes.json")).at("traceEvents");
  std::map<std::string, std::pair<double, double>> seen;
  for (const nlohmann::json& event : events) {
    if (event.at("ph") == "X") seen[event.at("name")] = {event.at("ts"), event.at("dur")};
  }
  EXPECT_EQ(seen, (std::map<std::string, std::pair<double, double>>{{"block forward 1", {0, 20e6}},
                                                                    {"block backward 1", {20e6, 10e6}},
                                                                    {"fetch weights 2", {0.5e6, 0.25e6}}}));
}

}  // namespace megatrain
