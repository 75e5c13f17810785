#include "megatrain/base/escape.h"

#include <gtest/gtest.h>

#include <string>

#include "megatrain/base/rng.h"

namespace megatrain {
namespace {

TEST(Escape, OrdinaryTextStaysAsItIs) {
  const std::string text = "a\tb\nc \\x1b \"quoted\" \u00e9 \u00a0 \u4e2d\u6587 \U0001F984 \u0645 e\u0301";
  EXPECT_EQ(escape_controls(text), text);
  EXPECT_EQ(escape_controls(""), "");
}

TEST(Escape, ControlsAreWrittenOut) {
  EXPECT_EQ(escape_controls("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(escape_controls(std::string("\0\r\x7f", 3)), "\\x00\\x0d\\x7f");
  EXPECT_EQ(escape_controls("\u009b31m\u0085"), "\\u009b31m\\u0085");
  EXPECT_EQ(escape_controls("user\u202eresu"), "user\\u202eresu");
  EXPECT_EQ(escape_line("a\nb\tc"), "a\\nb\\tc");
}

TEST(Escape, BytesThatAreNoUtf8AreWrittenOut) {
  EXPECT_EQ(escape_controls("\x9b"
                            "31m"),
            "\\x9b31m");
  EXPECT_EQ(escape_controls("a\xC3"), "a\\xc3");
  EXPECT_EQ(escape_controls("\xC0\x9B\xED\xA0\x80\xF5"), "\\xc0\\x9b\\xed\\xa0\\x80\\xf5");
  EXPECT_EQ(escape_controls("\xE4\xB8\u4e2d"), "\\xe4\\xb8\u4e2d");
}

TEST(Escape, NothingOfRandomBytesReachesATerminalAsAControl) {
  constexpr std::string_view kFavoured = "\x1b\x9b\xc2\x9d\xe2\x80\xae\n\r[;m\x7f";
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::string text;
    for (uint64_t i = 0; i < 40; ++i) {
      const uint64_t bits = random_bits(1, seed, i);
      text += bits % 3 == 0 ? static_cast<char>(bits >> 32) : kFavoured[(bits >> 8) % kFavoured.size()];
    }
    const std::string out = escape_controls(text);
    for (size_t i = 0; i < out.size(); ++i) {
      const auto byte = static_cast<unsigned char>(out[i]);
      EXPECT_TRUE(byte >= 0x20 || byte == '\n' || byte == '\t');
      EXPECT_NE(byte, 0x7F);
      if (byte == 0xC2) {
        EXPECT_GE(static_cast<unsigned char>(out[i + 1]), 0xA0);
      }
    }
    EXPECT_EQ(escape_controls(out), out);
  }
}

}  // namespace
}  // namespace megatrain
