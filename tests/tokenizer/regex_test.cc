#include "megatrain/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/tokenizer/linear_regex.h"
#include "tests/support/cpu_time.h"

namespace megatrain {
namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;

// Split patterns of published tokenizers, and one that groups digits from the right.
const std::vector<std::string>& published() {
  static const std::vector<std::string> made = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))|\p{L}+|\s+)",
      R"(\d{1,3}(?=(?:\d{3})*\b))",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([A-Za-z]+ing\b|(?<=[a-c])\d+x|^ *|\s+$)",
  };
  return made;
}

Ranges by_pcre2(const TokenizerRegex& regex, const std::string& text) {
  std::vector<ByteRange> matches;
  regex.find_all(text, matches);
  Ranges result;
  for (const ByteRange& match : matches) result.emplace_back(match.begin, match.end);
  return result;
}

// For ASCII text.
Ranges in_linear_time(const ClassPattern& translated, const LinearRegex& regex, const std::string& text) {
  std::string classes;
  for (const char c : text) classes += static_cast<char>(translated.classes[static_cast<unsigned char>(c)]);
  LinearRegex::Search search(regex, classes);
  Ranges result;
  for (size_t from = 0; from <= text.size();) {
    const std::optional<LinearRegex::Search::Match> match = search.find(from);
    if (!match) break;
    if (match->begin == match->end && !result.empty() && result.back().second == match->end) {
      from++;
      continue;
    }
    result.emplace_back(match->begin, match->end);
    from = match->end;
  }
  EXPECT_FALSE(search.exhausted());
  return result;
}

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t limit) { return random_bits(seed_, 0, count_++) % limit; }

  std::string text(size_t size) {
    static constexpr std::string_view kLetters = "aabbAB012 \n'x";
    std::string result;
    while (result.size() < size) {
      const char letter = kLetters[below(kLetters.size())];
      result.append(below(12) == 0 ? 1 + below(40) : 1, letter);
    }
    return result;
  }

  std::string pattern(int depth) {
    std::string result;
    for (uint64_t parts = 1 + below(3); parts > 0; parts--) {
      const std::string inner = depth == 0 ? "" : pattern(depth - 1);
      std::string atom;
      switch (depth == 0 ? below(5) : below(11)) {
        case 0: atom = "a"; break;
        case 1: atom = "[ab]"; break;
        case 2: atom = "\\d"; break;
        case 3: atom = "[^a\\n]"; break;
        case 4: atom = "\\s"; break;
        case 5: atom = "(" + inner + ")"; break;
        case 6: atom = "(?:" + inner + "|" + pattern(0) + ")"; break;
        case 7: atom = "(?>" + inner + ")"; break;
        case 8: result += "(?=" + inner + ")"; break;
        case 9: result += "(?!" + inner + ")"; break;
        default: result += below(2) == 0 ? "(?<=a|\\db)" : "(?<![ab])"; break;
      }
      static constexpr const char* kRepeats[] = {"",      "",     "",   "*",  "+",  "?", "{2}",
                                                 "{1,3}", "{2,}", "*?", "+?", "*+", "??"};
      if (!atom.empty()) result += atom + kRepeats[below(std::size(kRepeats))];
    }
    return below(4) == 0 ? result + "|" + pattern(0) : result;
  }

 private:
  uint64_t seed_, count_ = 0;
};

TEST(LinearRegex, FindsWhatPcre2FindsWithRandomPatterns) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 1500; seed++) {
    Random random(seed);
    const std::string pattern = random.pattern(2);
    const ClassPattern translated = translate_pattern(pattern, "test");
    const std::optional<LinearRegex> linear = LinearRegex::compile(translated.pattern);
    if (!linear) continue;
    const TokenizerRegex regex(pattern, "test");
    for (int i = 0; i < 5; i++) {
      const std::string text = random.text(60);
      ASSERT_EQ(in_linear_time(translated, *linear, text), by_pcre2(regex, text)) << pattern << "\n" << text;
      compared++;
    }
  }
  EXPECT_GT(compared, 2500);
}

TEST(TokenizerRegex, FindsTheSameInPiecesOfALongTextAsInTheWhole) {
  for (const std::string& pattern : published()) {
    const ClassPattern translated = translate_pattern(pattern, "test");
    const std::optional<LinearRegex> linear = LinearRegex::compile(translated.pattern);
    ASSERT_TRUE(linear) << pattern;
    const TokenizerRegex regex(pattern, "test");
    for (uint64_t seed = 0; seed < 20; seed++) {
      Random random(seed);
      std::string text;
      for (int i = 0; i < 4; i++) {
        text += random.text(random.below(2000));
        text += std::string(random.below(5000), "1 aA\n!"[random.below(6)]);
      }
      ASSERT_EQ(by_pcre2(regex, text), in_linear_time(translated, *linear, text)) << pattern << " " << seed;
    }
  }
}

TEST(TokenizerRegex, LongRunsTakeTimeInProportion) {
  std::vector<std::string> patterns = published();
  for (const char* const hostile :
       {R"(\d+x|\d)", R"((?:\d|\d\d)+x|\d)", R"((?:\d+)+x|\d)", R"((?=(?:\d+\d+)+x)\d|\d)", R"(\d(?=.*x)|\d)"}) {
    patterns.emplace_back(hostile);
  }
  for (const std::string& pattern : patterns) {
    for (const char letter : {'1', 'a', ' '}) {
      const std::string text(200'000, letter);
      const TokenizerRegex regex(pattern, "test");
      EXPECT_LT(cpu_seconds([&] { by_pcre2(regex, text); }), 20) << pattern << " on " << letter;
    }
  }
}

TEST(TokenizerRegex, ALazyRepetitionInAnAtomicGroupIsFound) {
  EXPECT_EQ(by_pcre2(TokenizerRegex(R"((?:(?>\d+?)\s|aa))", "test"), "xb 22\nA"), (Ranges{{4, 6}}));
}

// A repeated group that may match nothing, which only PCRE2 can decide.
TEST(TokenizerRegex, WhatCannotBeDecidedInLinearTimeEndsWithASentence) {
  const std::string pattern = R"(\d(?=(?:\d*)*x)|\d)";
  ASSERT_FALSE(LinearRegex::compile(translate_pattern(pattern, "test").pattern));
  const TokenizerRegex regex(pattern, "DIR/tokenizer.json");
  EXPECT_EQ(by_pcre2(regex, "12x3"), (Ranges{{0, 1}, {1, 2}, {3, 4}}));
  try {
    by_pcre2(regex, std::string(300'000, '1'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_NE(std::string(error.what()).find("DIR/tokenizer.json: the regular expression fails on a text of 300000"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace megatrain
