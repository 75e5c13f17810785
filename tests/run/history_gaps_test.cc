#include "megatrain/run/history_gaps.h"

#include "tests/support/said.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

std::string lines_of(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += "{\"step\":" + std::to_string(step) + ",\"loss\":1.5}\n";
  return text;
}

}  // namespace

TEST(HistoryGaps, NameTheStepsThatAreMissingInTheMiddle) {
  const auto said = [](std::vector<int64_t> steps, int64_t every) {
    return describe_gaps("f", std::move(steps), every);
  };
  EXPECT_EQ(said({2, 4, 6, 8}, 2), "");
  EXPECT_NE(said({2, 4, 8, 10}, 2).find("f has no record of step 6,"), std::string::npos);
  EXPECT_NE(said({2, 6, 12, 14}, 2).find("of steps 4, 8 to 10,"), std::string::npos);
  EXPECT_NE(said({10, 8, 2, 2, 4}, 2).find("of step 6,"), std::string::npos) << "in any order, and twice";
  EXPECT_NE(said({1, 3, 5, 7, 9, 11, 12}, 1).find("2, 4, 6, 8, ...,"), std::string::npos);
}

TEST(HistoryGaps, AreNotWhatAnotherSettingOrTheEndOfTheRunExplains) {
  const auto said = [](std::vector<int64_t> steps, int64_t every) {
    return describe_gaps("f", std::move(steps), every);
  };
  EXPECT_EQ(said({}, 2), "");
  EXPECT_EQ(said({3, 6, 9}, 0), "") << "nothing is expected";
  EXPECT_EQ(said({5, 10, 20, 30}, 10), "") << "it was 5";
  EXPECT_EQ(said({10, 20, 30, 35, 40}, 5), "") << "it was 10";
  EXPECT_EQ(said({10, 20, 25, 30, 40, 45, 50}, 10), "") << "the last steps of runs that were extended";
  EXPECT_EQ(said({110, 120, 130}, 10), "") << "it was off";
}

TEST(HistoryGaps, AreWarnedOfOnceForEachFile) {
  const TemporaryDirectory run;
  TrainConfig config;
  config.run_dir = run.path();
  config.eval.every = config.sample.every = 2;
  write_bytes(run / "metrics.jsonl", lines_of({1, 2, 3, 4, 5, 6, 7, 8}));
  write_bytes(run / "eval.jsonl", lines_of({2, 4, 8, 10}));
  write_bytes(run / "samples.jsonl",
              "{\"step\":2,\"prompt\":\"\\u00e9\",\"text\":\"\"}\n" + lines_of({2, 4, 8, 8, 10}));
  const std::string said = logged_by([&] { warn_of_gaps(config); });
  for (const std::string file : {"eval.jsonl", "samples.jsonl"}) {
    const std::string sentence = (run / file) + " has no record of step 6";
    const size_t at = said.find(sentence);
    EXPECT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find(sentence, at + 1), std::string::npos) << said;
  }
  EXPECT_EQ(said.find("metrics.jsonl"), std::string::npos) << said;
}

}  // namespace megatrain
