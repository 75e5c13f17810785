// Preference samples are refused wherever they occur, with a command that keeps the whole preferred conversation.
#include "megatrain/dataset/preferences.h"

#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

using testing::answer;
using testing::turn;
using Json = nlohmann::ordered_json;
using Shown = std::vector<std::string>;

class PreferencesTest : public testing::DatasetTest {
 protected:
  std::string refused(const std::string& rows) {
    return refusal([&] { tokenized(write("a.jsonl", rows)); });
  }
};

constexpr const char* kNoCommand =
    "to train only on the chosen answers, make each sample the whole conversation: {\"messages\": [{\"role\": "
    "\"user\", \"content\": QUESTION}, {\"role\": \"assistant\", \"content\": ANSWER}]}, or {\"prompt\": QUESTION, "
    "\"completion\": ANSWER}";

// make_preference_goldens.py ran the commands.
TEST_F(PreferencesTest, TheCommandThatIsPrintedMakesTheWholeBetterConversation) {
  const nlohmann::json forms = testing::dataset_golden("preferences.json");
  EXPECT_GE(forms.size(), 25u);
  for (const auto& form : forms) {
    SCOPED_TRACE(form["name"].get<std::string>());
    const std::string what = refused(form["sample"].dump() + "\n");
    const std::string command = "answers: jq -c '" + form["filter"].get<std::string>() + "' FILE > better.jsonl";
    EXPECT_TRUE(what.starts_with(path("a.jsonl") + ":1: ")) << what;
    EXPECT_NE(what.find(command), std::string::npos) << what << "\nwas to hold\n" << command;
    EXPECT_EQ(command.find('\'', command.find('\'') + 1), command.rfind('\'')) << "quotes of the shell";
    std::string expected;
    for (const auto& message : form["conversation"]) {
      const std::string text = message[1].get<std::string>();
      expected += message[0] == "assistant" ? answer(text) : turn(message[0].get<std::string>(), text);
    }
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(shown(tokenized(write("better.jsonl", form["made"].dump() + "\n"))), Shown{expected});
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "a column is not read";
  }
}

TEST_F(PreferencesTest, WhereNoCommandIsSureTheSentenceSaysWhatASampleLooksLike) {
  const std::string user = R"({"role": "user", "content": "Q"})", said = R"({"role": "assistant", "content": "A"})";
  const std::string pair = R"("chosen": "A", "rejected": "B"})";
  const std::string list = R"("chosen": [)" + user + "," + said + R"(], "rejected": [)" + user + "]}";
  for (const std::string& row : {"{" + pair,                                                   // no question
                                 R"({"prompt": "Q", "question": "P", )" + pair,                // two
                                 R"({"prompt": "A", )" + pair,                                 // occurs in the answer
                                 R"({"prompt": "Q", "history": "before", )" + pair,            // unknown shape
                                 R"({"messages": [)" + user + "," + said + "], " + pair,       // already has an answer
                                 R"({"prompt": [{"role": "user", "content": "P"}], )" + list,  // two questions
                                 R"({"conversations": [{"from": "human", "value": "Q"}], )" + list,  // two ways
                                 std::string(R"({"prompt": "Q", "chosen": {"text": "A"}, "rejected": {"text": "B"}})"),
                                 R"({"chosen": [)" + said + R"(], "rejected": []})"}) {
    const std::string what = preference_sentence(Json::parse(row));
    EXPECT_TRUE(what.ends_with(kNoCommand)) << row << "\n" << what;
  }
}

TEST_F(PreferencesTest, AreRefusedInAnyRowOfAnyFile) {
  const std::string good = R"({"prompt": "Q", "completion": "A"})"
                           "\n";
  const std::string pair = R"({"prompt": "Q", "completion": "A", "chosen": "A", "rejected": "B"})"
                           "\n";
  const std::string judged = R"({"prompt": "Q", "completion": "A", "label": false})"
                             "\n";
  EXPECT_TRUE(refused(good + pair).starts_with(path("a.jsonl") + ":2: it has a chosen and a rejected answer"));
  EXPECT_TRUE(refused(good + judged).starts_with(path("a.jsonl") + ":2: \"label\" says whether"));
  std::string many;  // more rows than are examined to detect the format
  for (int i = 0; i < 1500; ++i) many += good;
  EXPECT_TRUE(refused(many + pair).starts_with(path("a.jsonl") + ":1501: it has a chosen and a rejected answer"));
  EXPECT_TRUE(refused(many + judged).starts_with(path("a.jsonl") + ":1501: \"label\" says whether"));
  EXPECT_TRUE(refused(many + R"({"prompt": "Q", "completion": "A", "images": ["x.png"]})")
                  .starts_with(path("a.jsonl") + ":1501: it has \"images\""));
  write("folder/1.jsonl", good);
  write("folder/2.jsonl", good + pair);
  const std::string what = refusal([&] { tokenized(path("folder")); });
  EXPECT_TRUE(what.starts_with(path("folder/2.jsonl") + ":2: it has a chosen and a rejected answer")) << what;
  TokenizeOptions how = options();
  how.skip_bad = 1;
  EXPECT_EQ(tokenized(write("a.jsonl", good + pair + good), how).samples(), 2) << "a bad sample as any other";
}

TEST_F(PreferencesTest, NumbersAreJudgementsWhereTheSampleIsOfThatForm) {
  for (const char* const value : {"true", "false", "1", "0", "1.0"}) {
    const std::string row = fmt::format(R"({{"prompt": "Q", "completion": "A", "label": {}}})", value);
    EXPECT_NE(refused(row).find("\"label\" says whether its answer is good"), std::string::npos) << row;
  }
  for (const char* const row :
       {R"({"prompt": "Q", "completion": "A", "label": "sports"})", R"({"prompt": "Q", "completion": "A", "label": 7})",
        R"({"prompt": "Q", "completion": "A", "label": null})", R"({"question": "Q", "answer": "A", "label": 1})",
        R"({"text": "a film", "label": 0})", R"({"prompt": "Q", "completion": "A", "chosen": null, "rejected": null})"})
    EXPECT_EQ(refused(row), "") << row;
}

TEST_F(PreferencesTest, AFormThatIsGivenAndAColumnThatIsNamedAreTheUsersChoice) {
  Dataset dataset = open_dataset(write("a.jsonl", R"({"question": "Q", "chosen": "A", "rejected": "B"})"));
  dataset.columns = {.prompt = "question", .response = "chosen"};
  EXPECT_EQ(shown(tokenized(dataset)), (Shown{turn("user", "Q") + answer("A")}));
  dataset = open_dataset(write("b.jsonl", R"({"prompt": "Q", "completion": "A", "label": 1})"));
  dataset.form = DatasetForm::prompt;
  EXPECT_EQ(shown(tokenized(dataset)), (Shown{turn("user", "Q") + answer("A")}));
}

}  // namespace
}  // namespace megatrain
