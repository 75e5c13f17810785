// The normalizer of a tokenizer.json: what happens to a text before it is cut.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatrain/unicode/aligned_text.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/tokenizer/regex.h"
#include "megatrain/unicode/normalize.h"

namespace megatrain {

// A text or a regular expression, as Split and Replace have it.
class TextPattern {
 public:
  explicit TextPattern(const TokenizerNode& node);  // {"String": …} or {"Regex": …}
  // Matches from left to right, none overlapping.
  void find_all(std::string_view text, std::vector<ByteRange>& matches) const;
  bool may_be_in(std::string_view text) const;  // cheap: false only when there is no match
  bool may_match_nothing() const { return regex_ && regex_->may_match_nothing(); }

 private:
  std::string text_;
  std::shared_ptr<const TokenizerRegex> regex_;
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const TokenizerNode& node);

  // Nothing when the text stays as it is (then it is a copy saved); Error(bad_input) when it grows past 64 times its
  // size and 4 KiB. Origins in `text` count from `origin` on.
  std::optional<AlignedText> normalize(std::string_view text, uint32_t origin, bool track) const;
  bool empty() const { return steps_.empty(); }

 private:
  struct Lowercase {};
  struct StripAccents {};
  struct ByteLevel {};
  struct Strip {
    bool left = false, right = false;
  };
  struct Prepend {
    std::string text;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  using Step = std::variant<UnicodeForm, Lowercase, StripAccents, ByteLevel, Strip, Prepend, Replace>;

  static Step read_step(const TokenizerNode& node);
  static bool leaves_alone(const Step& step, std::string_view text);
  AlignedText apply(const Step& step, const AlignedText& text, size_t most) const;
  void refuse_above(size_t most, size_t bytes) const;

  std::vector<Step> steps_;
  std::string where_;  // the place in tokenizer.json
};

// Each character of a text with where it came from.
AlignedText align_text(std::string_view text, uint32_t origin, bool track);

// Every match becomes `content`, which comes from where the match's last character came from.
AlignedText replace_all(const AlignedText& text, const std::vector<ByteRange>& matches, std::string_view content);

AlignedText prepended(const AlignedText& text, std::string_view prefix);  // of a text that is not empty

AlignedText to_byte_characters(const AlignedText& text);

}  // namespace megatrain
