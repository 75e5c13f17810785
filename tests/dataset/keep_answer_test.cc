#include "megatrain/dataset/keep_answer.h"

#include <fmt/format.h>

#include "tests/dataset/dataset_fixture.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

Json said_by(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// Bytes of content, a stand-in for tokens.
size_t size_of(const Json& messages) {
  size_t size = 0;
  for (const Json& message : messages) size += message["content"].get_ref<const std::string&>().size();
  return size;
}

KeptAnswer kept_within(const Json& messages, size_t most) {
  return keep_answer(messages, [most](const Json& part) { return size_of(part) <= most; });
}

// Every content ends in a word of its own; sizes 20, 10 + 10, 10 + 10, 10 + 10.
Json talk() {
  return Json::array({said_by("system", "system text of 20 b."), said_by("user", "question 1"),
                      said_by("assistant", "answer 001"), said_by("user", "question 2"),
                      said_by("assistant", "answer 002"), said_by("user", "question 3"),
                      said_by("assistant", "answer 003")});
}

TEST(KeepAnswer, LeavesOutAsFewOfTheOldestTurnsAsPossibleAndThenTheEndOfTheSystemTurn) {
  const Json all = talk();
  for (size_t most = 0; most < size_of(all); ++most) {
    const KeptAnswer kept = kept_within(all, most);
    if (most < 20) {
      EXPECT_TRUE(kept.messages.empty()) << most;
      continue;
    }
    ASSERT_GE(kept.messages.size(), 2u) << most;
    EXPECT_LE(size_of(kept.messages), most);
    EXPECT_EQ(kept.messages[kept.messages.size() - 2], all[5]) << most;
    EXPECT_EQ(kept.messages.back(), all[6]) << most;
    EXPECT_TRUE(kept.lost_turns) << most;
    EXPECT_EQ(kept.shortened_system, most < 40) << most;
    if (most == 20) {
      EXPECT_EQ(kept.messages.size(), 2u) << "the system turn is gone";
    }
    if (most > 20 && most < 40) {
      EXPECT_EQ(kept.messages[0]["content"], std::string("system text of 20 b.").substr(0, most - 20));
    }
    if (most >= 40) {
      EXPECT_EQ(kept.messages.size(), most >= 60 ? 5u : 3u) << most;
      EXPECT_EQ(kept.messages[0], all[0]);
    }
  }
}

TEST(KeepAnswer, ToolCallsGoWithTheirResultsAndACharacterIsNeverCut) {
  const Json all = Json::array({said_by("system", "ééé"), said_by("assistant", "greeting"), said_by("user", "old"),
                                said_by("user", "old2"), said_by("assistant", "call"), said_by("tool", "result"),
                                said_by("assistant", "said"), said_by("user", "new"), said_by("assistant", "call"),
                                said_by("tool", "result"), said_by("assistant", "end")});
  EXPECT_EQ(kept_within(all, size_of(all) - 1).messages[1], all[2]) << "the greeting goes first";
  const KeptAnswer less = kept_within(all, size_of(all) - 9);
  EXPECT_EQ(less.messages.size(), 5u);
  EXPECT_EQ(less.messages[1], all[7]);
  const KeptAnswer cut = kept_within(all, 16 + 3);
  EXPECT_EQ(cut.messages[0]["content"], "é");
  EXPECT_TRUE(kept_within(all, 15).messages.empty());
}

TEST(KeepAnswer, AConversationOfOneTurnLosesOnlyItsSystemTurn) {
  const Json all = Json::array({said_by("system", "0123456789"), said_by("user", "q"), said_by("assistant", "a")});
  const KeptAnswer kept = kept_within(all, 7);
  EXPECT_EQ(kept.messages[0]["content"], "01234");
  EXPECT_FALSE(kept.lost_turns);
  EXPECT_TRUE(kept.shortened_system);
}

using KeptSamples = testing::DatasetTest;

TEST_F(KeptSamples, AreRenderedAgainAndFitAndEndWithTheWholeAnswer) {
  std::string line = R"({"messages": [{"role": "system", "content": "Be kind and brief."})";
  for (int i = 0; i < 40; ++i)
    line += fmt::format(
        R"(, {{"role": "user", "content": "question {0}"}}, {{"role": "assistant", "content": "answer {0}"}})", i);
  const std::string file = write("long.jsonl", line + "]}\n");
  const SampleStore whole = tokenized(file);
  EXPECT_FALSE(whole.lost_turns(0) || whole.has_shortened_system(0));
  int64_t before = 0;
  for (const int64_t most : {20, 30, 60, 100, 200, 400}) {
    TokenizeOptions how = options();
    how.keep_answer_within = most;
    const SampleStore store = tokenized(file, how);
    EXPECT_NE(store.fingerprint(), whole.fingerprint());
    const std::string text = shown(store, 0);
    EXPECT_TRUE(text.ends_with("<|im_start|>user\nquestion 39<|im_end|>\n<|im_start|>assistant\n"
                               "[answer 39<|im_end|>]\n") ||
                most == 20)
        << text;
    if (store.length(0) > most) {
      EXPECT_EQ(store.length(0), whole.length(0)) << "what cannot fit stays, to be dropped: " << most;
      continue;
    }
    EXPECT_TRUE(store.lost_turns(0)) << most;
    EXPECT_GE(store.length(0), before);
    EXPECT_TRUE(store.has_shortened_system(0) || text.find("Be kind and brief.") != std::string::npos);
    before = store.length(0);
  }
  EXPECT_GT(before, 300) << "as much as fits";
  TokenizeOptions roomy = options();
  roomy.keep_answer_within = whole.length(0);
  EXPECT_EQ(shown(tokenized(file, roomy), 0), shown(whole, 0));
}

}  // namespace
}  // namespace megatrain
