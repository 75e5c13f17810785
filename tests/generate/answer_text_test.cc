// Stop strings in text that arrives in pieces.
#include "megatrain/generate/answer_text.h"

#include <gtest/gtest.h>

namespace megatrain {
namespace {

// Everything that passes if the text arrives in pieces of `size` bytes; "|" marks where it stopped.
std::string pass(const std::vector<std::string>& stops, const std::string& text, size_t size) {
  StopText stop(stops);
  std::string out;
  for (size_t at = 0; at < text.size() && !stop.stopped(); at += size) out += stop.add(text.substr(at, size));
  out += stop.finish();
  return stop.stopped() ? out + "|" : out;
}

TEST(StopText, TextEndsBeforeTheFirstStopStringHoweverItIsCut) {
  for (size_t size = 1; size < 12; ++size) {
    EXPECT_EQ(pass({"END"}, "one ENtwo END three", size), "one ENtwo |");
    EXPECT_EQ(pass({"END", "two"}, "one ENtwo END three", size), "one EN|");
    EXPECT_EQ(pass({"\n\n"}, "a\nb\n\nc", size), "a\nb|");
    EXPECT_EQ(pass({"aab"}, "aaab", size), "a|");
    EXPECT_EQ(pass({"xyz"}, "a text that ends in xy", size), "a text that ends in xy");
    EXPECT_EQ(pass({}, "anything", size), "anything");
  }
}

TEST(StopText, OnlyWhatMayBeginAStopStringIsHeldBack) {
  StopText stop({"END"});
  EXPECT_EQ(stop.add("abc"), "abc");
  EXPECT_EQ(stop.add("dE"), "d");
  EXPECT_EQ(stop.add("N"), "");
  EXPECT_EQ(stop.add("x"), "ENx");
}

}  // namespace
}  // namespace megatrain
