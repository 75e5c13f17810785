// `megatrain eval`: counts exact answers, and refuses bad rows by line.
#include "tests/support/speaking_model.h"

namespace megatrain::cli {

namespace {

std::string answer_to(const SpeakingModel& model, const Words& words) { return model.generate(words).at("text"); }

json eval(const SpeakingModel& model, const std::string& rows, const Words& more = {}) {
  write_bytes(model / "rows.jsonl", rows);
  Words words = {model / "rows.jsonl", "--json", "--data.cache", model / "cache"};
  words.insert(words.end(), more.begin(), more.end());
  return json::parse(succeed(model.words(words, "eval")).out);
}

}  // namespace

TEST(Eval, CountsAnswersThatAreExactlyRight) {
  const SpeakingModel model;
  const std::string hi = answer_to(model, {"--chat", "--prompt=hi", "--max-tokens=8"}),
                    two = answer_to(model, {"--chat", "--prompt=two", "--max-tokens=8"});
  std::string rows = json{{"question", "hi"}, {"answer", "  " + hi + "\n"}}.dump() + "\n";
  rows += json{{"question", "two"}, {"answer", two}}.dump() + "\n\n";
  rows += json{{"question", "hi"}, {"answer", "wrong"}}.dump() + "\n";
  const json got = eval(model, rows, {"--max-tokens=8"});
  EXPECT_EQ(got.at("count"), 3);
  EXPECT_EQ(got.at("right"), 2);
  EXPECT_NEAR(got.at("exact_match"), 2.0 / 3, 1e-12);
  ASSERT_EQ(got.at("mismatches").size(), 1u);
  EXPECT_EQ(got.at("mismatches")[0].at("line"), 4);
  EXPECT_EQ(got.at("mismatches")[0].at("expected"), "wrong");
  EXPECT_EQ(got.at("mismatches")[0].at("got"), hi);
  const Outcome text =
      succeed(model.words({model / "rows.jsonl", "--max-tokens=8", "--data.cache", model / "cache"}, "eval"));
  EXPECT_EQ(text.out.substr(0, text.out.find('\n')), "exact_match 0.6667 (2 of 3)");
  EXPECT_NE(text.out.find("line 4: expected \"wrong\", got"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\nloss "), std::string::npos) << text.out;
}

TEST(Eval, EachFormOfRowAsksTheSame) {
  const SpeakingModel model;
  const std::string hi = answer_to(model, {"--chat", "--prompt=hi", "--max-tokens=8"});
  const json forms[] = {
      {{"question", "hi"}, {"answer", hi}},
      {{"prompt", "hi"}, {"completion", hi}},
      {{"messages", {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", hi}}}}}};
  const double loss = eval(model, forms[0].dump()).at("loss");
  for (const json& form : forms) {
    const json got = eval(model, form.dump(), {"--max-tokens=8"});
    EXPECT_EQ(got.at("exact_match"), 1.0) << form;
    EXPECT_EQ(got.at("loss"), loss) << form;
  }
}

TEST(Eval, ALabelAndColumnsThatAreNullAreNoPartOfTheQuestion) {
  const SpeakingModel model;
  const json plain = {{"prompt", "hi"}, {"completion", "ho"}};
  const double loss = eval(model, plain.dump()).at("loss");
  for (const json& label : {json(0), json(1), json(true)}) {
    json row = plain;
    row.update({{"label", label}, {"messages", nullptr}, {"question", nullptr}, {"text", nullptr}});
    EXPECT_EQ(eval(model, row.dump()).at("loss"), loss) << row;
  }
}

TEST(Eval, RowsMayStandInAnArray) {
  const SpeakingModel model;
  write_bytes(model / "rows.json",
              "[{\"question\": \"a\", \"answer\": \"b\"},\n {\"question\": \"c\", \"answer\": \"d\"}]");
  const json got =
      json::parse(succeed(model.words({model / "rows.json", "--json", "--data.cache", model / "cache"}, "eval")).out);
  EXPECT_EQ(got.at("count"), 2);
  EXPECT_GT(got.at("loss"), 0);
}

TEST(Eval, OfTextIsTheLossOfAllOfIt) {
  const SpeakingModel model;
  write_bytes(model / "book.txt", "tea and toast tea and toast");
  const Outcome outcome = succeed(model.words({model / "book.txt", "--json", "--data.cache", model / "cache"}, "eval"));
  EXPECT_NE(outcome.err.find("evaluation data: 1 sample, "), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("training data"), std::string::npos) << outcome.err;
  const json got = json::parse(outcome.out);
  EXPECT_FALSE(got.contains("exact_match"));
  EXPECT_GT(got.at("loss"), 0);
  EXPECT_GT(got.at("loss_tokens"), 5);
}

TEST(Eval, WithoutATemplateTheQuestionIsAskedAsItStands) {
  const SpeakingModel model("llama_linear", false);
  const std::string hi = answer_to(model, {"--prompt=hi", "--max-tokens=8"});
  EXPECT_EQ(eval(model, json{{"question", "hi"}, {"answer", hi}}.dump(), {"--max-tokens=8"}).at("exact_match"), 1.0);
  write_bytes(model / "rows.jsonl",
              R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  expect_refusal(model.words({model / "rows.jsonl"}, "eval"), ExitCode::bad_input,
                 {"rows.jsonl:1: ", "no chat template"});
}

TEST(Eval, WithoutATemplateTheLossOfAnswersAloneIsRefused) {
  const SpeakingModel model("llama_linear", false);
  const Words words = model.words({model / "rows.jsonl", "--loss-only", "--json"}, "eval");
  write_bytes(model / "rows.jsonl",
              R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  expect_refusal(words, ExitCode::bad_input, {"nothing to measure", model.path() + " has none; add its chat_template"});
  EXPECT_EQ(megatrain(words).err.find("leave --loss-only out"), std::string::npos) << "conversations need a template";
  write_bytes(model / "rows.jsonl", R"({"question": "a", "answer": "b"})");
  expect_refusal(words, ExitCode::bad_input, {"nothing to measure", "leave --loss-only out to count right answers"});
}

TEST(Eval, ALengthOfAnswersIsRefusedWhereNoneIsMade) {
  const SpeakingModel model;
  write_bytes(model / "rows.jsonl", R"({"question": "a", "answer": "b"})");
  write_bytes(model / "book.txt", "tea and toast");
  expect_refusal(model.words({model / "rows.jsonl", "--loss-only", "--max-tokens=5"}, "eval"), ExitCode::bad_config,
                 {"--max-tokens", "--loss-only"});
  expect_refusal(model.words({model / "book.txt", "--max-tokens=5"}, "eval"), ExitCode::bad_config,
                 {"--max-tokens", "book.txt is text"});
}

TEST(Eval, RefusesBadRowsByLine) {
  const SpeakingModel model;
  const std::string good = "{\"question\": \"a\", \"answer\": \"b\"}\n";
  const auto refuse = [&](const std::string& row, std::initializer_list<std::string> parts) {
    write_bytes(model / "rows.jsonl", good + row + "\n" + good);
    expect_refusal(model.words({model / "rows.jsonl"}, "eval"), ExitCode::bad_input, parts);
    expect_refusal(model.words({model / "rows.jsonl"}, "eval"), ExitCode::bad_input, {"rows.jsonl:2: "});
  };
  refuse("{\"question\": \"a\"}", {"\"answer\""});
  refuse("{\"question\": 4, \"answer\": \"b\"}", {"\"question\" is a number; expected text"});
  refuse("{\"question\": \"\", \"answer\": \"b\"}", {"empty"});
  refuse("{\"prompt\": \"a\", \"answer\": \"b\"}", {"\"completion\""});
  refuse("{\"text\": \"a\"}", {"neither"});
  refuse("[1]", {"expected an object, but the row is a list"});
  refuse("{\"question\": \"a\", \"question\": \"a\", \"answer\": \"b\"}", {"duplicate key \"question\""});
  refuse("{\"question\": \"a\xff\", \"answer\": \"b\"}", {"byte 48 of the file, 0xff, is not UTF-8"});
  refuse("{\"question\": }", {"not valid JSON at column 14"});
  refuse("{\"messages\": []}", {"messages"});
  refuse("{\"messages\": [{\"content\": \"a\"}]}", {"message 1", "role"});
  refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", {"last message", "assistant"});
  refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", {"nothing is asked"});
  refuse("{\"question\": \"" + std::string(200, 'a') + "\", \"answer\": \"b\"}", {"tokens", "context"});
}

TEST(Eval, WantsAModelAndAFile) {
  const SpeakingModel model;
  expect_refusal(model.words({}, "eval"), ExitCode::bad_config, {"a file of questions or text"});
  expect_refusal(model.words({model / "absent.jsonl"}, "eval"), ExitCode::bad_input, {"absent.jsonl"});
}

}  // namespace megatrain::cli
