#include "megatrain/dataset/shorten.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "megatrain/dataset/sample_store.h"

namespace megatrain {
namespace {

struct Turn {
  int64_t prompt = 0, answer = 0;
};

// Prompts and answers of a conversation; every token is a different number.
std::vector<uint32_t> entries_of(const std::vector<Turn>& turns) {
  std::vector<uint32_t> entries;
  for (const Turn& turn : turns) {
    for (int64_t i = 0; i < turn.prompt; ++i) entries.push_back(static_cast<uint32_t>(entries.size()));
    for (int64_t i = 0; i < turn.answer; ++i) entries.push_back(static_cast<uint32_t>(entries.size()) | kTrainedBit);
  }
  return entries;
}

// LLaMA-Factory's documented rule for one turn: the (prompt, answer) lengths that fit into `room`.
Turn cut(Turn turn, int64_t room) {
  int64_t most = 0;
  if (turn.answer * 2 < room) {
    most = room;
  } else if (turn.prompt * 2 < room) {
    most = room - turn.prompt;
  } else {
    most = static_cast<int64_t>(static_cast<double>(room) *
                                (static_cast<double>(turn.answer) / static_cast<double>(turn.prompt + turn.answer)));
  }
  const int64_t answer = std::min(most, turn.answer);
  return {std::min(std::max<int64_t>(room - answer, 0), turn.prompt), answer};
}

TEST(ShortenTurns, KeepsOfEachTurnWhatLlamaFactoryKeeps) {
  std::mt19937 random(7);
  std::vector<uint32_t> short_ones;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Turn> turns(1 + random() % 5);
    for (Turn& turn : turns) turn = {1 + static_cast<int64_t>(random() % 60), 1 + static_cast<int64_t>(random() % 60)};
    const std::vector<uint32_t> all = entries_of(turns);
    const int64_t most = 2 + static_cast<int64_t>(random() % 100);
    std::vector<uint32_t> expected;
    size_t begin = 0;
    for (const Turn& turn : turns) {
      if (std::ssize(expected) >= most) break;
      const Turn kept = cut(turn, most - std::ssize(expected));
      expected.insert(expected.end(), all.begin() + begin, all.begin() + begin + kept.prompt);
      begin += turn.prompt;
      expected.insert(expected.end(), all.begin() + begin, all.begin() + begin + kept.answer);
      begin += turn.answer;
    }
    shorten_turns(all, most, false, short_ones);
    ASSERT_EQ(short_ones, expected);
    EXPECT_EQ(std::ssize(short_ones), std::min<int64_t>(most, std::ssize(all)));
  }
}

TEST(ShortenTurns, KeepsAnAnswerWhosePromptAloneIsTooLong) {
  std::vector<uint32_t> kept;
  const auto answer = [&] {
    return std::count_if(kept.begin(), kept.end(), [](uint32_t e) { return e & kTrainedBit; });
  };
  shorten_turns(entries_of({{5000, 10}}), 100, false, kept);
  EXPECT_EQ(kept.size(), 100u);
  EXPECT_EQ(answer(), 10);
  EXPECT_EQ(kept[0], 0u);
  shorten_turns(entries_of({{5000, 10}}), 100, true, kept);
  EXPECT_EQ(answer(), 10);
  EXPECT_EQ(kept[89], 4999u);  // the part next to the answer
  shorten_turns(entries_of({{5000, 5000}}), 100, false, kept);
  EXPECT_EQ(answer(), 50);
}

}  // namespace
}  // namespace megatrain
