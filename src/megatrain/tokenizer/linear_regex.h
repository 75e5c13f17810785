// Patterns over classes in time that grows as the text, whatever the pattern: the fallback where PCRE2 would go over
// the same characters again and again.
//
// Without captures and back references, what a place in the pattern makes of a place in the text depends on nothing
// else. So each such pair is decided once, also inside look-aheads, over all matches of a text.
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
  // Takes what translate_pattern() writes. None for a pattern that it cannot decide: one that repeats what may match
  // nothing, looks behind by no fixed length, or has repetition counts of more than some thousands.
  static std::optional<LinearRegex> compile(std::string_view pattern);

  // Searches in one text; what was decided stays known from match to match. Refers to both.
  class Search {
   public:
    Search(const LinearRegex& regex, std::string_view text);

    struct Match {
      size_t begin = 0, end = 0;
    };
    // The first match that begins at `from` or later, the one that a backtracking matcher finds; `from` must not
    // decrease. None also when more memory than kMaxMemoryBytes would be needed; then exhausted().
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
    size_t end_of(int32_t state, size_t at);  // of what matches()
    bool looks(int32_t state, size_t at);
    Decision& decision(int32_t state, size_t at);

    const LinearRegex& regex_;
    std::string_view text_;
    std::vector<Frame> frames_;
    std::vector<std::unique_ptr<Decision[]>> blocks_;  // kBlock positions each, of every choice
    size_t freed_ = 0;                                 // blocks below it are not needed any more
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
    int32_t next = -1;   // of a choice, what is tried first
    int32_t other = -1;  // of a choice, what is tried second; of ahead and atomic, what they hold
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
