// The Precompiled normalizer: SentencePiece's map of characters, as its models carry it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/unicode/aligned_text.h"

namespace megatrain {

class Charsmap {
 public:
  // {"precompiled_charsmap": base64 of a double array and the texts that it refers to}
  explicit Charsmap(const TokenizerNode& node);

  bool leaves_alone(std::string_view text) const;  // cheap; true only if nothing changes
  // Replaces graphemes below 6 bytes as a whole, and the characters of others one by one. Where a replacement is empty,
  // nothing is left. Stops once the text has more than `most` bytes.
  AlignedText apply(const AlignedText& text, size_t most) const;

 private:
  // The replacement of the shortest key that `text` begins with.
  std::optional<std::string_view> replacement(std::string_view text) const;
  uint32_t unit(uint32_t at) const;
  [[noreturn]] void refuse_array() const;

  std::vector<uint32_t> units_;  // a double array; a key's value is its replacement's place in `texts_`
  std::string texts_;            // each ends with a NUL or at the end
  std::string where_;
};

}  // namespace megatrain
