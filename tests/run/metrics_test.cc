// What the line of a step says about its time.
#include "megatrain/run/metrics.h"

#include <gtest/gtest.h>

#include "megatrain/io/json.h"

namespace megatrain {

namespace {

// A step that computes for most of its 0.5 seconds and waits 0.02 within.
StepMetrics computing(double before_s = 0, const std::string& what = "") {
  StepMetrics m{.step = 7, .steps = 10};
  m.report.tokens = 100;
  m.report.seconds = 0.5 + before_s;
  m.report.lanes.busy[static_cast<size_t>(Lane::compute)] = 0.48;
  m.report.lanes.busy[static_cast<size_t>(Lane::update)] = 0.2;
  m.report.stall = {.seconds = 0.02 + before_s, .cause = "update of layer 3"};
  m.report.add_pause(before_s, what);
  return m;
}

std::string said_of(const StepMetrics& m) { return metrics_fields(m).back().text; }
nlohmann::json written_of(const StepMetrics& m) { return nlohmann::json::parse(metrics_json(m)); }

}  // namespace

TEST(StepLine, AfterACheckpointItSaysWhatTheTimeWentTo) {
  EXPECT_EQ(said_of(computing()), "bound by compute (compute 96% busy, longest wait 0.02 s for update of layer 3)");
  const StepMetrics saved = computing(3.0, "the checkpoint");
  EXPECT_EQ(said_of(saved), "bound by compute (compute 96% busy, after 3 s for the checkpoint)");
  EXPECT_EQ(written_of(saved).at("seconds"), 3.5) << "the time since the step before, whatever it was for";
  EXPECT_EQ(written_of(saved).at("paused_s"), 3.0);
  EXPECT_EQ(written_of(saved).at("stall"), (nlohmann::json{{"seconds", 3.0}, {"for", "the checkpoint"}}));
}

TEST(StepLine, AShortPauseLeavesTheLongestWaitAsItIs) {
  const StepMetrics loaded = computing(0.001, "the data");
  EXPECT_EQ(said_of(loaded), "bound by compute (compute 96% busy, longest wait 0.021 s for update of layer 3)");
  EXPECT_EQ(written_of(loaded).at("stall").at("for"), "update of layer 3");
}

// A step that waits for the update also does so after a checkpoint.
TEST(StepLine, APauseHidesNotWhatBoundsTheStepItself) {
  StepMetrics m = computing(3.0, "the samples");
  m.report.lanes.busy[static_cast<size_t>(Lane::compute)] = 0.1;
  m.report.lanes.busy[static_cast<size_t>(Lane::update)] = 0.45;
  EXPECT_EQ(said_of(m), "bound by update (compute 20% busy, after 3 s for the samples)");
  EXPECT_EQ(written_of(m).at("bound_by"), "update");
}

TEST(StepLine, NoPauseIsLongerThanTheStepsTime) {
  StepMetrics m = computing();
  m.report.add_pause(9, "the checkpoint");
  EXPECT_EQ(m.report.paused_s, 0.5);
  EXPECT_EQ(m.report.own_seconds(), 0);
  EXPECT_FALSE(said_of(m).empty());
}

}  // namespace megatrain
