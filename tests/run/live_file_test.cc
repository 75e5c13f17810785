#include "megatrain/run/live_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

StepMetrics metrics_of(int64_t step) {
  StepMetrics m{.step = step, .steps = 10};
  m.hbm_peak = 700;
  m.host_peak = 900;
  return m;
}

json read_live(const std::string& directory) { return json::parse(read_bytes(directory + "/live.json")); }

}  // namespace

TEST(LiveFile, IsWholeWheneverItIsReadAndEndsWithHowTheRunEnded) {
  const TemporaryDirectory run;
  std::vector<Action> actions(50, Action{.kind = ActionKind::forward, .lane = Lane::compute});
  {
    LiveFile live(run.path(), {.step = 2, .steps = 10, .hbm_planned = 5, .floor = {{"step_s", 1.5}}, .every_s = 1e-4},
                  [] { return std::string("compute is in a test"); });
    EXPECT_EQ(read_live(run.path()).at("step"), 2) << "it is there from the start";
    std::set<double> written;
    for (int64_t step = 3; written.size() < 200; ++step) {
      live.step(metrics_of(step), 600);
      if (live.wants_lanes()) {
        std::vector<Span> spans;
        for (size_t i = 0; i < actions.size(); ++i)
          spans.push_back({&actions[i], static_cast<double>(i), static_cast<double>(i) + 0.9, 1});
        live.lanes(step, 50, spans);
      }
      const json text = read_live(run.path());
      written.insert(text.at("written").get<double>());
      EXPECT_EQ(text.at("state"), "running");
      EXPECT_TRUE(text.at("exit_code").is_null());
    }
    while (read_live(run.path()).at("lanes").is_null()) {
    }
    const json text = read_live(run.path());
    EXPECT_EQ(text.at("memory").at("hbm").at("peak"), 700);
    EXPECT_EQ(text.at("memory").at("hbm").at("planned"), 5);
    EXPECT_EQ(text.at("running"), "compute is in a test");
    EXPECT_EQ(text.at("floor").at("step_s"), 1.5);
    live.end({.state = "failed", .exit_code = 6, .message = "a \"loss\""});
  }
  const json text = read_live(run.path());
  EXPECT_EQ(text.at("state"), "failed");
  EXPECT_EQ(text.at("exit_code"), 6);
  EXPECT_EQ(text.at("message"), "a \"loss\"");
  EXPECT_EQ(text.at("doing"), "");
  EXPECT_EQ(listing(run.path()), std::set<std::string>{"live.json"});
}

TEST(LiveFile, ThatCannotBeWrittenDoesNotEndARun) {
  LiveFile live("/nowhere/at/all", {.every_s = 1e-3}, {});
  live.step(metrics_of(1), 1);
  live.end({.state = "complete"});
}

TEST(LiveFile, SaysHowARunEndedOnADiskThatTakesNoMore) {
  const TemporaryDirectory run;
  const std::string message = "cannot write " + std::string(300, 'x') + ": No space left on device";
  for (const std::string& told : {message, std::string(100'000, 'y')}) {
    const std::string path = run.path() + "/live.json", partial = fmt::format("{}.{}-0.partial", path, ::getpid());
    {
      LiveFile live(run.path(), {.steps = 10, .every_s = 3600}, {});
      const auto size = std::filesystem::file_size(path);
      std::filesystem::create_directory(partial);  // so no new file can be created beside it
      live.end({.state = "failed", .exit_code = 5, .message = told});
      EXPECT_EQ(std::filesystem::file_size(path), size) << "not one block more";
    }
    std::filesystem::remove(partial);
    const json text = read_live(run.path());
    EXPECT_EQ(text.at("state"), "failed");
    EXPECT_EQ(text.at("exit_code"), 5);
    EXPECT_EQ(told.find(text.at("message").get<std::string>()), 0u);
    EXPECT_GT(text.at("message").get<std::string>().size(), 300u);
  }
}

TEST(LiveFile, HoldsNoPeakBelowWhatIsUsed) {
  const TemporaryDirectory run;
  LiveFile live(run.path(), {.steps = 10, .every_s = 3600}, {});
  live.step(metrics_of(1), 800);  // above the peak of 700 that the step reports
  live.end({.state = "complete"});
  const json memory = read_live(run.path()).at("memory");
  for (const char* tier : {"hbm", "host"})
    EXPECT_GE(memory.at(tier).at("peak").get<int64_t>(), memory.at(tier).at("used").get<int64_t>()) << tier;
}

TEST(LiveFile, LanesOfManyShortActionsAreFewSpansOfTheSameTime) {
  std::vector<Action> actions;
  for (int i = 0; i < 20'000; ++i)
    actions.push_back(Action{.kind = i < 10'000 ? ActionKind::forward : ActionKind::backward, .lane = Lane::compute});
  std::vector<Span> spans;
  for (size_t i = 0; i < actions.size(); ++i)
    spans.push_back({&actions[i], 5 + 1e-4 * static_cast<double>(i), 5 + 1e-4 * static_cast<double>(i + 1), 3});
  const json lanes = live_lanes(7, 2, spans);
  EXPECT_EQ(lanes.at("step"), 7);
  EXPECT_LT(lanes.dump().size(), 50'000u);
  for (const json& track : lanes.at("tracks")) {
    if (track.at("lane") != "compute") {
      EXPECT_TRUE(track.at("spans").empty());
      continue;
    }
    EXPECT_NEAR(track.at("busy_s").get<double>(), 2, 1e-6);
    int64_t count = 0;
    double seconds = 0;
    for (const json& span : track.at("spans")) {
      count += span.at(4).get<int64_t>();
      seconds += span.at(1).get<double>();
    }
    EXPECT_EQ(count, 20'000);
    EXPECT_NEAR(seconds, 2, 1e-3);
    EXPECT_EQ(track.at("spans").front().at(0), 0);
    EXPECT_EQ(track.at("spans").front().at(3), 3);
  }
}

}  // namespace megatrain
