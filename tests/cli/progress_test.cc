#include "megatrain/cli/progress.h"

#include "tests/cli/command.h"

namespace megatrain::cli {

namespace {

StepMetrics metrics(int64_t step, int64_t steps, double seconds) {
  StepMetrics m{.step = step, .steps = steps, .lr = 1e-4};
  m.report.loss = 2.5;
  m.report.tokens = 1000;
  m.report.seconds = seconds;
  return m;
}

}  // namespace

TEST(Progress, SaysHowFarAndHowLongStill) {
  Progress progress;
  const std::string line = progress.line(metrics(120, 4000, 2.0));
  EXPECT_TRUE(line.starts_with("step 120/4000 3%  loss 2.5000")) << line;
  EXPECT_NE(line.find("ETA 2h09m"), std::string::npos) << line;
  EXPECT_EQ(progress.line(metrics(4000, 4000, 2.0)).find("ETA"), std::string::npos);
}

TEST(Progress, TheFirstStepsWarmUpIsForgottenAndAHiccupSmoothed) {
  StepClock clock;
  clock.add(60);
  EXPECT_EQ(clock.seconds(), 60);
  for (int i = 0; i < 10; ++i) clock.add(1);
  EXPECT_EQ(clock.seconds(), 1);
  clock.add(21);
  EXPECT_GT(clock.seconds(), 1);
  EXPECT_LE(clock.seconds(), 3);
  for (int i = 0; i < 200; ++i) clock.add(2);
  EXPECT_NEAR(clock.seconds(), 2, 0.01);
}

TEST(Progress, IsOneLineAStepWhenNobodyWatches) {
  const Place place("llama_linear", "steps: 12\ncheckpoint.every: 6\n");
  const Outcome outcome = succeed({"train", place.config()});
  for (int step = 1; step <= 12; ++step)
    EXPECT_NE(outcome.err.find(fmt::format("\nstep {}/12 {}%  loss", step, 100 * step / 12)), std::string::npos)
        << step;
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);
  for (const char* part : {"loading the weights from", "saving a checkpoint of step 6", "writing the model to"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part;
}

}  // namespace megatrain::cli
