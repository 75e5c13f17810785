// A template's source as tokens, with Jinja's rules of whitespace as chat templates have them: trim_blocks and
// lstrip_blocks on, one newline at the end dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  symbol,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // of data and strings: the meaning, not the spelling
  double real = 0;
};

// A template that does not parse.
struct SyntaxFailure {
  int line;
  std::string message;
};

std::vector<Token> tokenize(std::string_view source);  // throws SyntaxFailure

}  // namespace megatrain::jinja
