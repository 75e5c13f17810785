#include "megatrain/engine/stall_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <string>

#include "tests/pipeline/tiny.h"
#include "tests/support/plan_changes.h"

namespace megatrain {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Trains three steps while the update lane hangs in its first action until `release` is ready.
void train_with_a_hang(Trainer& trainer, const tiny::Tiny& model, std::shared_future<void> release) {
  trainer.updater().observe([release](int64_t, const HostGradient&) { release.wait(); });
  for (int64_t step = 1; step <= 3; ++step) model.step(trainer, step);
  trainer.drain();
}

Plan with_updates_on_the_host(tiny::Tiny& model) {
  Plan plan = model.default_plan();
  live_on_host(model.workload(), plan);
  return plan;
}

TEST(StallWatch, SaysWhereALaneHangsAndEndsTheRun) {
  tiny::Tiny model({});
  const auto trainer = model.trainer(with_updates_on_the_host(model));
  std::promise<void> release;
  std::promise<std::string> told;
  trainer->watch({.warn_s = kNever, .end_s = 1, .poll_s = 0.05}, [&](const std::string& why) {
    told.set_value(why);
    release.set_value();
  });
  train_with_a_hang(*trainer, model, release.get_future().share());
  const std::string why = told.get_future().get();
  EXPECT_NE(why.find("lane update runs update of layer"), std::string::npos) << why;
  EXPECT_TRUE(why.ends_with("; the run is stuck and will stop. Check the GPU and the disk")) << why;
}

TEST(StallWatch, WarnsOnceBeforeThat) {
  tiny::Tiny model({});
  const auto trainer = model.trainer(with_updates_on_the_host(model));
  std::promise<void> release;
  testing::internal::CaptureStderr();
  trainer->watch({.warn_s = 0.5, .end_s = 1, .poll_s = 0.05}, [&](const std::string&) { release.set_value(); });
  train_with_a_hang(*trainer, model, release.get_future().share());
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(lines.starts_with("warning: no action has finished for ")) << lines;
  EXPECT_NE(lines.find("lane update runs update of layer"), std::string::npos) << lines;
  EXPECT_EQ(lines.find("warning", 1), std::string::npos) << lines;
}

TEST(StallWatch, AStepThatGetsOnAndAPauseBetweenStepsAreNoStall) {
  tiny::Tiny model({});
  const auto trainer = model.trainer(with_updates_on_the_host(model));
  std::atomic<int> ended{0};
  trainer->watch({.warn_s = kNever, .end_s = 1, .poll_s = 0.02}, [&](const std::string&) { ++ended; });
  trainer->updater().observe(
      [](int64_t, const HostGradient&) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); });
  for (int64_t step = 1; step <= 2; ++step) model.step(*trainer, step);  // 8 records: longer than end_s in total
  trainer->drain();
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace megatrain
