#include "megatrain/base/status_line.h"

#include <gtest/gtest.h>

#include "megatrain/base/shell_word.h"

namespace megatrain {

namespace {

const std::vector<LogField> kStep = {{"step 120/4000 3%", LogColour::bold},
                                     {"ETA 2h09m"},
                                     {"loss 2.5000", LogColour::green},
                                     {"13.3K tokens/s"},
                                     {"epoch 0.31"},
                                     {"bound by compute (compute 99% busy)", LogColour::dim}};

}  // namespace

TEST(StatusLine, FitsEveryWidthAndShowsWholeFieldsTheFirstOnesFirst) {
  const std::string whole = joined(kStep);
  EXPECT_EQ(whole,
            "step 120/4000 3%  ETA 2h09m  loss 2.5000  13.3K tokens/s  epoch 0.31  bound by compute (compute 99% "
            "busy)");
  for (int64_t columns = 0; columns <= 120; ++columns) {
    const std::string line = status_line(kStep, columns, false);
    EXPECT_LE(columns_of(line), columns);
    ASSERT_TRUE(whole.starts_with(line)) << line;
    EXPECT_TRUE(line.size() == whole.size() || whole[line.size()] == ' ' || line.empty()) << "cut in a word: " << line;
  }
  EXPECT_EQ(status_line(kStep, 45, false), "step 120/4000 3%  ETA 2h09m  loss 2.5000");
  EXPECT_EQ(status_line(kStep, 14, false), "step 120/4000");
  EXPECT_EQ(status_line(kStep, 3, false), "");
}

TEST(StatusLine, ColoursTakeNoColumnsAndEndWhereTheirFieldDoes) {
  const std::string line = status_line(kStep, 28, true);
  EXPECT_EQ(line, "\x1b[1mstep 120/4000 3%\x1b[0m  ETA 2h09m");
}

TEST(StatusLine, EscapesWhatATerminalWouldObeyAndCountsWideCharacters) {
  EXPECT_EQ(status_line({{"a\x1b[31mb\nc"}}, 80, false), "a\\x1b[31mb\\nc");
  EXPECT_EQ(joined({{"a\rb"}}), "a\\x0db");
  EXPECT_EQ(columns_of("数据 a"), 6);
  EXPECT_EQ(status_line({{"tokenising 数据.jsonl: 3%"}}, 21, false), "tokenising");  // 22 columns
  EXPECT_EQ(status_line({{"tokenising 数据.jsonl: 3%"}}, 22, false), "tokenising 数据.jsonl:");
}

TEST(ShellWord, QuotesWhatAShellWouldReadOtherwise) {
  EXPECT_EQ(shell_word("runs/chat-1_2.yaml"), "runs/chat-1_2.yaml");
  EXPECT_EQ(shell_word("--optim.lr=1e-4"), "--optim.lr=1e-4");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my runs/a"), "'my runs/a'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word("~/a*"), "'~/a*'");
  EXPECT_EQ(shell_word("läuft"), "'läuft'");
  EXPECT_EQ(shell_word("a\nb'c"), "$'a\\x0ab\\'c'");
}

}  // namespace megatrain
