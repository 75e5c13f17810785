// From conversations to a model that can be served: prepare, train, evaluate, export, generate.
#include <cmath>

#include "tests/cli/chat_set.h"
#include "tests/support/command.h"
#include "tests/support/places.h"

namespace megatrain::cli {

TEST(ChatEndToEnd, AModelLearnsToAnswerQuestionsItNeverSawAndAnswersAsItDoesInTransformers) {
  const json golden = json::parse(read_bytes(in_repository("tests/cli/goldens/chat_answers.json")));
  const TemporaryDirectory folder;
  write_chat_set(golden.at("seed"), folder.path());
  const json trained = json::parse(succeed({"train", folder / "chat.yaml", "--json"}).out);
  EXPECT_LT(trained.at("eval_loss"), 0.1);

  const json result = json::parse(
      succeed({"eval", folder / "run", folder / "test.jsonl", "--data.cache", folder / "cache", "--json"}).out);
  EXPECT_EQ(result.at("count"), 200);
  EXPECT_GE(result.at("exact_match"), 0.95) << result.at("mismatches");
  EXPECT_LT(result.at("loss"), 0.1);
  EXPECT_DOUBLE_EQ(result.at("perplexity").get<double>(), std::exp(result.at("loss").get<double>()));

  std::string prompts;
  for (const json& one : golden.at("answers"))
    prompts += json{{"messages", {{{"role", "user"}, {"content", one.at("question")}}}}}.dump() + "\n";
  write_bytes(folder / "prompts.jsonl", prompts);
  const std::vector<json> answers = json_lines(succeed({"generate", folder / "run", "--chat", "--prompt-file",
                                                        folder / "prompts.jsonl", "--max-tokens", "24", "--json"})
                                                   .out);
  ASSERT_EQ(answers.size(), golden.at("answers").size());
  for (size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(answers[i].at("text"), golden.at("answers")[i].at("text")) << golden.at("answers")[i];
}

}  // namespace megatrain::cli
