#include "megatrain/unicode/graphemes.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace megatrain {
namespace {

std::vector<std::string> clusters(const std::string& text) {
  std::vector<std::string> found;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = grapheme_end(text, begin);
    found.push_back(text.substr(begin, end - begin));
  }
  return found;
}

TEST(Graphemes, JoinWhatTheStandardJoinsAndNothingElse) {
  // "|" marks the boundaries.
  const std::vector<std::string> texts = {
      "a|b|c",
      "\r\n|a|\r|\r\n|\n|\u0301",                              // controls join nothing but CR LF
      "e\u0301\u0323|f",                                       // marks that extend
      "\u0915\u093F|x",                                        // a spacing mark
      "\u0600a|\u0600\u0301|b",                                // prepended
      "\u1100\u1161\u11A8|\u1100",                             // Hangul: lead, vowel, tail
      "\uAC00\u11A8\u11A8|\uAC01\u11A8|\uAC01|\u1161",         // syllables
      "\U0001F469\u200D\U0001F469\u200D\U0001F467|x",          // a family
      "\U0001F469\u200D\u200D|\U0001F469",                     // two joiners
      "\U0001F469\U0001F3FD\u200D\U0001F680",                  // a skin tone before the joiner
      "a\u200D|\U0001F680",                                    // a joiner after a letter
      "\U0001F1EF\U0001F1F5|\U0001F1E9\U0001F1EA|\U0001F1EF",  // flags
      "\u0915\u094D\u0937|\u0937",                             // an Indic conjunct
      "\u0915\u094D\u200D\u0937|\u0915\u093C|\u0937",          // linked beside a joiner; not linked
  };
  for (const std::string& marked : texts) {
    std::vector<std::string> want = {""};
    std::string text;
    for (const char c : marked) {
      if (c == '|') {
        want.emplace_back();
      } else {
        want.back() += c;
        text += c;
      }
    }
    EXPECT_EQ(clusters(text), want) << marked;
  }
}

}  // namespace
}  // namespace megatrain
