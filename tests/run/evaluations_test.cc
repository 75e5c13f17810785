#include "megatrain/run/evaluations.h"

#include <filesystem>

#include "megatrain/io/json.h"
#include "megatrain/io/line_file.h"
#include "tests/support/fixtures.h"

namespace megatrain {

TEST(Evaluations, TheLowestLossSurvivesACutLineAndAResume) {
  const TemporaryDirectory run;
  const std::string path = run / "eval.jsonl";
  {
    Evaluations evaluations(path, 2);
    evaluations.add({.step = 2, .loss = 1.5, .tokens = 7});
    evaluations.add({.step = 4, .loss = 1.75, .tokens = 7});
  }
  write_bytes(path, read_bytes(path) + "{\"step\":6,\"lo");  // killed while writing
  {
    Evaluations evaluations(path, 2);  // the incomplete line is ignored, not yet dropped
    EXPECT_FALSE(evaluations.is_lowest(1.6));
    evaluations.add({.step = 6, .loss = 1.6, .tokens = 7});
    EXPECT_EQ(evaluations.best_step(), 2);
    EXPECT_TRUE(evaluations.exhausted());
  }
  keep_lines_up_to(path, 6);
  const Evaluations evaluations(path, 2);
  EXPECT_EQ(evaluations.best_loss(), 1.5);
  EXPECT_EQ(evaluations.last_step(), 6);
}

TEST(Evaluations, OneWhosePerplexityIsInfiniteIsStillJson) {
  const TemporaryDirectory run;
  const std::string path = run / "eval.jsonl";
  Evaluations(path, 0).add({.step = 3, .loss = 897.8, .tokens = 7});
  keep_lines_up_to(path, 3);
  EXPECT_FALSE(std::filesystem::exists(path + ".damaged"));
  EXPECT_EQ(Evaluations(path, 0).loss_of(3), 897.8);
}

TEST(Evaluations, PatienceCountsOneEvaluationAStep) {
  const TemporaryDirectory run;
  const std::string path = run / "eval.jsonl", line = "{\"step\":4,\"loss\":1.75}\n";
  write_bytes(path, "{\"step\":2,\"loss\":1.5}\n" + line + line + line + "{\"step\":-3,\"loss\":2.0}\n{}\n");
  Evaluations evaluations(path, 3);
  EXPECT_FALSE(evaluations.exhausted());
  EXPECT_EQ(evaluations.last_step(), 4);
  evaluations.add({.step = 6, .loss = 1.6, .tokens = 7});
  EXPECT_FALSE(evaluations.exhausted());
  evaluations.add({.step = 8, .loss = 1.6, .tokens = 7});
  EXPECT_TRUE(evaluations.exhausted());
}

TEST(Evaluations, AFileThatCannotBeReadIsNoEmptyHistory) {
  const TemporaryDirectory run;
  std::filesystem::create_symlink("eval.jsonl", run / "eval.jsonl");
  expect_error(ExitCode::io, {"eval.jsonl"}, [&] { Evaluations(run / "eval.jsonl", 0); });
}

}  // namespace megatrain
