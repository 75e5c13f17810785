// Matches class patterns in time linear in the text, whatever the pattern: the fallback where PCRE2 would backtrack
// over the same characters again and again.
//
// Without captures and back references, whether a place in the pattern matches at a place in the text depends on
// nothing else. So each such pair is decided once for all matches in a text, also inside look-aheads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

class LinearRegex {
 public:
  // Takes the output of translate_pattern(). Empty for a pattern that it cannot decide: one that repeats something that
  // may match nothing, has a look-behind of no fixed length, or repetition counts of more than some thousands.
  static std::optional<LinearRegex> compile(std::string_view pattern);

  // Searches in one text. Decisions are remembered from match to match. Keeps references to both arguments.
  class Search {
   public:
    Search(const LinearRegex& regex, std::string_view text);

    struct Match {
      size_t begin = 0, end = 0;
    };
    // The first match at `from` or later: the one that a backtracking matcher finds. `from` must not decrease. Also
    // empty if it would need more memory than kMaxMemoryBytes; exhausted() is then true.
    std::optional<Match> find(size_t from);
    bool exhausted() const { return exhausted_; }

   private:
    enum Decision : uint8_t { unknown, fails, by_first, by_second };
    struct Frame {
      int32_t state;
      size_t at;
      bool second;
    };

    bool matches(int32_t state, size_t at);
    size_t end_of(int32_t state, size_t at);  // where the match of matches() ends
    bool looks(int32_t state, size_t at);
    Decision& decision(int32_t state, size_t at);

    const LinearRegex& regex_;
    std::string_view text_;
    std::vector<Frame> frames_;
    std::vector<std::unique_ptr<Decision[]>> blocks_;  // kBlock positions each, for every choice
    size_t freed_ = 0;                                 // blocks below this are no longer needed
    size_t held_ = 0;
    bool exhausted_ = false;
  };

  static constexpr size_t kMaxMemoryBytes = size_t{1} << 30;

 private:
  struct Compiler;
  enum class Kind : uint8_t { set, choice, ahead, behind, atomic, begin, end, accept };
  struct State {
    Kind kind = Kind::accept;
    bool negated = false;
    int32_t next = -1;   // of a choice: the first alternative
    int32_t other = -1;  // of a choice: the second alternative; of ahead and atomic: their contents
    int32_t index = -1;  // of a set, a choice or a list of lengths
  };
  struct Behind {
    size_t length;
    int32_t state;
  };

  std::vector<State> states_;
  std::vector<std::array<bool, 256>> sets_;
  std::vector<std::vector<Behind>> behinds_;
  int32_t start_ = -1;
  size_t choices_ = 0;
  size_t longest_behind_ = 0;
};

}  // namespace megatrain
