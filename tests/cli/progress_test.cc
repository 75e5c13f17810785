#include "megatrain/cli/progress.h"

#include "megatrain/base/shell_word.h"
#include "tests/support/command.h"
#include "tests/support/places.h"

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
  StepMetrics m = metrics(120, 4000, 2.0);
  m.epoch = 0.314;
  const std::string line = joined(progress.fields(m));
  EXPECT_TRUE(line.starts_with("step 120/4000 3%  ETA 2h09m  loss 2.5000  500 tokens/s  epoch 0.31  ")) << line;
  EXPECT_EQ(joined(progress.fields(metrics(4000, 4000, 2.0))).find("ETA"), std::string::npos);
}

TEST(Progress, TheTimeLeftIsNoLongerAfterAnHourOfBeingSuspended) {
  Progress progress;
  for (int step = 1; step <= 10; ++step) progress.fields(metrics(step, 4010, 1.0));
  const std::string line = joined(progress.fields(metrics(11, 4011, 3600.0)));
  EXPECT_NE(line.find("  ETA 1h06m  "), std::string::npos) << line;
  StepMetrics saved = metrics(12, 4012, 101.0);
  saved.report.add_pause(100, "the checkpoint");  // one in twelve steps: 1 s and 8.3 s
  const std::string after = joined(progress.fields(saved));
  EXPECT_NE(after.find("  ETA 10h22m  "), std::string::npos) << after;
}

TEST(Progress, IsOneLineAStepWhenNobodyWatches) {
  const Place place("llama_linear", "steps: 12\ncheckpoint.every: 6\n");
  const Outcome outcome = succeed({"train", place.config()});
  for (int step = 1; step <= 12; ++step)
    EXPECT_NE(outcome.err.find(fmt::format("\nstep {}/12 {}%  {}", step, 100 * step / 12, step < 12 ? "ETA" : "loss")),
              std::string::npos)
        << step;
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
  for (const char* part : {"loading the weights from", "saving a checkpoint of step 6", "writing the model to"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part;
}

// `script` gives the program a terminal with a width of its own.
TEST(Progress, FitsTheTerminalAndIsColouredUnlessNoColorIsSet) {
  const Place place("llama_linear", "steps: 3\n");
  const std::string run =
      "script -qec \"stty cols $1; $2 exec '$0' train '$3' >/dev/null\" /dev/null </dev/null | tr -d '\\r'";
  for (const char* columns : {"20", "50", "300"}) {
    const Outcome outcome = Process({columns, "NO_COLOR=1", place.config()}, "", run).wait();
    EXPECT_NE(outcome.out.find("step 3/3 100%"), std::string::npos) << outcome.out;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.rfind("\x1b[K");  // the line that is rewritten
      if (at == std::string::npos) continue;
      EXPECT_LT(line.size() - at - 3, std::stoul(columns)) << line;
    }
    EXPECT_EQ(outcome.out.find("\x1b[1m"), std::string::npos) << outcome.out;
  }
  const Outcome coloured = Process({"50", "unset NO_COLOR;", place.config()}, "", run).wait();
  EXPECT_NE(coloured.out.find("\x1b[1mstep 3/3 100%\x1b[0m"), std::string::npos) << coloured.out;
}

TEST(NextCommands, ArePrintedReadyToPasteAtTheEndAndAtAStop) {
  const Place place("llama_linear", "steps: 100000\n");
  const std::string run = place / "it's a run";
  Process process({"train", place.config(), "--run_dir=" + run});
  ASSERT_TRUE(eventually([&] { return process.said().find("\nstep 2/") != std::string::npos; }));
  process.signal(SIGINT);
  const Outcome stopped = process.wait();
  EXPECT_EQ(stopped.code, 130);
  const std::string again = fmt::format("  {} train {} '--run_dir={}' --resume", shell_word(program()), place.config(),
                                        place / "it'\\''s a run");
  ASSERT_NE(stopped.err.find("next:\n" + again), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find(" export '"), std::string::npos) << stopped.err;

  // pasted into a shell, the command resumes
  const size_t at = stopped.err.find(again);
  const std::string pasted = stopped.err.substr(at, stopped.err.find('\n', at) - at);
  Process resumed({}, "", "exec " + pasted);  // without exec the signal would end only the shell
  ASSERT_TRUE(eventually([&] { return resumed.said().find("\nstep ") != std::string::npos || resumed.ended(); }));
  EXPECT_EQ(resumed.said().find("starting from the beginning"), std::string::npos) << resumed.said();
  resumed.signal(SIGTERM);
  const Outcome ended = resumed.wait();
  EXPECT_EQ(ended.code, 143) << ended.err;

  const Place whole("llama_linear", "steps: 2\n");
  const Outcome done = succeed({"train", whole.config()});
  EXPECT_NE(done.err.find(fmt::format("  {} report {}  ", shell_word(program()), whole.run())), std::string::npos)
      << done.err;
  EXPECT_EQ(succeed({"train", whole.config(), "--json"}).err.find("next:"), std::string::npos);
}

}  // namespace megatrain::cli
