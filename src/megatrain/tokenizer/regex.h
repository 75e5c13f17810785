// Regular expressions as tokenizer files write them: the syntax and the character classes of Oniguruma (Ruby), run by
// PCRE2.
//
// The code points that no part of a pattern tells apart form one class; a text is matched as one byte for each code
// point, its class. So matching is byte work, and the Unicode version is ours, not that of the library that is
// installed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/unicode/aligned_text.h"
#include "megatrain/unicode/unicode.h"

namespace megatrain {

// A pattern over classes of code points.
struct ClassPattern {
  std::string pattern;            // for a matcher of bytes
  CodePointMap<uint8_t> classes;  // the byte that stands for a code point
};

// Throws Error(bad_input) on syntax it does not know; `where` names the pattern's place.
ClassPattern translate_pattern(std::string_view pattern, const std::string& where);

class TokenizerRegex {
 public:
  TokenizerRegex(std::string_view pattern, const std::string& where);
  ~TokenizerRegex();
  TokenizerRegex(TokenizerRegex&&) noexcept;
  TokenizerRegex& operator=(TokenizerRegex&&) noexcept;

  bool may_match_nothing() const;

  // Matches of valid UTF-8 from left to right, none overlapping, in time that grows as the text unless linear_regex.h
  // cannot decide the pattern. Thread-safe.
  void find_all(std::string_view text, std::vector<ByteRange>& matches) const;

 private:
  struct Compiled;
  [[noreturn]] void fail_on(std::string_view text, const std::string& reason) const;

  std::string where_;
  CodePointMap<uint8_t> classes_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace megatrain
