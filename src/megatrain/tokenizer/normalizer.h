// The normalizer of a tokenizer.json: what happens to a text before it is split.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatrain/unicode/aligned_text.h"
#include "megatrain/tokenizer/charsmap.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/tokenizer/regex.h"
#include "megatrain/unicode/normalize.h"

namespace megatrain {

// A literal text or a regular expression, as used by Split and Replace.
class TextPattern {
 public:
  explicit TextPattern(const TokenizerNode& node);  // {"String": …} or {"Regex": …}
  // Non-overlapping matches from left to right.
  void find_all(std::string_view text, std::vector<ByteRange>& matches) const;
  bool may_be_in(std::string_view text) const;  // cheap; false only if there is no match

 private:
  std::string text_;
  std::shared_ptr<const TokenizerRegex> regex_;
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const TokenizerNode& node);

  // Empty if the text does not change, which saves a copy. Error(bad_input) if it grows beyond 4 KiB and 64 times its
  // size. Origins in `text` count from `origin` on.
  std::optional<AlignedText> normalize(std::string_view text, uint32_t origin, bool track) const;
  bool empty() const { return steps_.empty(); }

 private:
  struct Lowercase {};
  struct StripAccents {};
  struct ByteLevel {};
  struct Nmt {};
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
  using Step = std::variant<UnicodeForm, Lowercase, StripAccents, ByteLevel, Nmt, Charsmap, Strip, Prepend, Replace>;

  static Step read_step(const TokenizerNode& node);
  static bool leaves_alone(const Step& step, std::string_view text);
  AlignedText apply(const Step& step, const AlignedText& text, size_t most) const;
  void refuse_above(size_t most, size_t bytes) const;

  std::vector<Step> steps_;
  std::string where_;  // place in tokenizer.json
};

// Each character of a text with its origin.
AlignedText align_text(std::string_view text, uint32_t origin, bool track);

// Replaces every match with `content`, whose origin is that of the match's last character; that of an empty match is
// empty and before the next character.
AlignedText replace_all(const AlignedText& text, const std::vector<ByteRange>& matches, std::string_view content);

AlignedText prepended(const AlignedText& text, std::string_view prefix);  // `text` is not empty

AlignedText to_byte_characters(const AlignedText& text);

}  // namespace megatrain
