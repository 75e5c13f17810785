// Splits a template's source into tokens. Whitespace follows the settings of chat templates: trim_blocks and
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
  std::string text;  // of data and strings, with escapes resolved
  double real = 0;
};

// Thrown for a template that does not parse.
struct SyntaxFailure {
  int line;
  std::string message;
};

std::vector<Token> tokenize(std::string_view source);  // throws SyntaxFailure

}  // namespace megatrain::jinja
