// Regular expressions as written in tokenizer files: Oniguruma's (Ruby's) syntax and character classes, run by PCRE2.
//
// Code points that no part of a pattern distinguishes form one class. A text is matched as one byte per code point: its
// class. So matching works on bytes, and the Unicode version is ours, not that of the installed library.
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
  CodePointMap<uint8_t> classes;  // the byte for each code point
};

// Throws Error(bad_input) on unknown syntax; `where` names the pattern's place.
ClassPattern translate_pattern(std::string_view pattern, const std::string& where);

class TokenizerRegex {
 public:
  TokenizerRegex(std::string_view pattern, const std::string& where);
  ~TokenizerRegex();
  TokenizerRegex(TokenizerRegex&&) noexcept;
  TokenizerRegex& operator=(TokenizerRegex&&) noexcept;

  // Non-overlapping matches in valid UTF-8, from left to right. Takes time linear in the text, unless linear_regex.h
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
