#include "megatrain/chat/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "megatrain/chat/jinja/big_integer.h"
#include "megatrain/chat/jinja/text.h"

namespace megatrain::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                         "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      out += '\n';
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
    } else {
      out += source[at];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return is_decimal(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

size_t skip_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_space(next_code(text, next))) break;
    at = next;
  }
  return at;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string_view::npos) {
        add_data(text_.substr(at_));
        break;
      }
      read_tag(tag);
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw SyntaxFailure{line_, message}; }

  Token& add(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
    return tokens_.back();
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(TokenKind::data, std::string(text));
  }

  void advance(size_t to) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(at_), text_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    line_starting_ = to > at_ && text_[to - 1] == '\n';
    at_ = to;
  }

  size_t next_tag() const {
    for (size_t at = text_.find('{', at_); at != std::string_view::npos; at = text_.find('{', at + 1)) {
      if (at + 1 < text_.size() && (text_[at + 1] == '%' || text_[at + 1] == '{' || text_[at + 1] == '#')) return at;
    }
    return std::string_view::npos;
  }

  // The text before a tag, without what the tag's sign and lstrip_blocks strip.
  std::string_view text_before(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') {
      while (!text.empty()) {
        size_t last = text.size() - 1;
        while (!is_utf8_boundary(text[last])) --last;
        size_t at = last;
        if (!is_space(next_code(text, at))) break;
        text = text.substr(0, last);
      }
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starting_) && skip_spaces(text, begin) == text.size()) text = text.substr(0, begin);
    }
    return text;
  }

  void read_tag(size_t tag) {
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+') ? text_[tag + 2] : ' ';
    const size_t inside = tag + (sign == ' ' ? 2 : 3);
    add_data(text_before(text_.substr(at_, tag - at_), sign, kind == '{'));
    advance(inside);
    if (kind == '#') return read_comment();
    if (kind == '%') {
      const size_t raw = raw_end(inside);
      if (raw != std::string_view::npos) {
        advance(raw);
        return read_raw();
      }
    }
    add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin, "");
    read_code(kind == '{');
  }

  // The position after `raw %}`, or npos if it is another tag.
  size_t raw_end(size_t at) const {
    at = skip_spaces(text_, at);
    if (text_.substr(at, 3) != "raw") return std::string_view::npos;
    at = skip_spaces(text_, at + 3);
    if (text_.substr(at, 2) == "%}") return at + 2;
    if (text_.substr(at, 3) == "-%}") return skip_spaces(text_, at + 3);
    return std::string_view::npos;
  }

  void read_raw() {
    for (size_t tag = text_.find("{%", at_); tag != std::string_view::npos; tag = text_.find("{%", tag + 1)) {
      const char sign =
          tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+') ? text_[tag + 2] : ' ';
      size_t at = skip_spaces(text_, tag + (sign == ' ' ? 2 : 3));
      if (text_.substr(at, 6) != "endraw") continue;
      const size_t end = block_end(skip_spaces(text_, at + 6));
      if (end == std::string_view::npos) continue;
      add_data(text_before(text_.substr(at_, tag - at_), sign, false));
      return advance(end);
    }
    fail("Missing end of raw directive");
  }

  void read_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) fail("Missing end of comment tag");
    size_t after = end + 2;
    if (end > at_ && text_[end - 1] == '-') {
      after = skip_spaces(text_, after);
    } else if (!(end > at_ && text_[end - 1] == '+') && after < text_.size() && text_[after] == '\n') {
      ++after;
    }
    advance(after);
  }

  // The position after the end of a block tag at `at`, or npos.
  size_t block_end(size_t at) const {
    if (text_.substr(at, 3) == "+%}") return at + 3;
    if (text_.substr(at, 3) == "-%}") return skip_spaces(text_, at + 3);
    if (text_.substr(at, 2) != "%}") return std::string_view::npos;
    return at + 2 < text_.size() && text_[at + 2] == '\n' ? at + 3 : at + 2;
  }

  size_t variable_end(size_t at) const {
    if (text_.substr(at, 3) == "-}}") return skip_spaces(text_, at + 3);
    return text_.substr(at, 2) == "}}" ? at + 2 : std::string_view::npos;
  }

  void read_code(bool is_variable) {
    std::string open;  // unclosed brackets
    while (true) {
      advance(skip_spaces(text_, at_));
      if (at_ >= text_.size()) return;
      if (open.empty()) {
        const size_t end = is_variable ? variable_end(at_) : block_end(at_);
        if (end != std::string_view::npos) {
          add(is_variable ? TokenKind::variable_end : TokenKind::block_end, "");
          return advance(end);
        }
      }
      const char c = text_[at_];
      if (is_decimal(c)) {
        read_number();
      } else if (is_name_char(c)) {
        size_t end = at_;
        while (end < text_.size() && is_name_char(text_[end])) ++end;
        add(TokenKind::name, std::string(text_.substr(at_, end - at_)));
        advance(end);
      } else if (c == '\'' || c == '"') {
        read_string(c);
      } else {
        read_symbol(open);
      }
    }
  }

  size_t digits_end(size_t at) const {
    if (at >= text_.size() || !is_decimal(text_[at])) return at;
    while (at < text_.size() &&
           (is_decimal(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() && is_decimal(text_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void read_number() {
    const bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    size_t end = digits_end(at_);
    bool real = false;
    if (!after_dot) {
      if (end < text_.size() && text_[end] == '.' && digits_end(end + 1) > end + 1) {
        end = digits_end(end + 1);
        real = true;
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        const size_t sign =
            end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? end + 2 : end + 1;
        if (digits_end(sign) > sign) {
          end = digits_end(sign);
          real = true;
        }
      }
    }
    std::string digits(text_.substr(at_, end - at_));
    std::erase(digits, '_');
    if (real) {
      add(TokenKind::real, digits).real = std::strtod(digits.c_str(), nullptr);
    } else {
      if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
        fail("an integer may not begin with zeros");
      }
      if (digits == "0" && end < text_.size() && is_name_char(text_[end])) fail("only decimal integers are supported");
      if (digits.size() > BigInteger::kMaxDigits) {
        fail(fmt::format("an integer has more than {} digits", BigInteger::kMaxDigits));
      }
      add(TokenKind::integer, digits);
    }
    advance(end);
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail(fmt::format("unexpected char {}", quote == '"' ? "'\"'" : "\"'\""));
    add(TokenKind::string, unescape(text_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '\\') {
        out += text[at];
        continue;
      }
      const char c = text[++at];
      switch (c) {
        case '\n': break;
        case '\\': out += '\\'; break;
        case '\'': out += '\''; break;
        case '"': out += '"'; break;
        case 'a': out += '\a'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'v': out += '\v'; break;
        case 'x': at = add_hex(text, at, 2, out); break;
        case 'u': at = add_hex(text, at, 4, out); break;
        case 'U': at = add_hex(text, at, 8, out); break;
        case 'N': fail("a character by name (\\N) in a string is not supported");
        default:
          if (c >= '0' && c <= '7') {
            char32_t code = 0;
            size_t digits = 0;
            while (digits < 3 && at + digits < text.size() && text[at + digits] >= '0' && text[at + digits] <= '7') {
              code = code * 8 + static_cast<char32_t>(text[at + digits++] - '0');
            }
            append_utf8(out, code);
            at += digits - 1;
          } else {
            out += '\\';
            out += c;
          }
      }
    }
    return out;
  }

  size_t add_hex(std::string_view text, size_t at, size_t digits, std::string& out) const {
    uint32_t code = 0;
    const std::string_view hex = text.substr(at + 1, digits);
    const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (hex.size() != digits || read.ec != std::errc() || read.ptr != hex.data() + digits || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000)) {
      fail("a string has an invalid escape");
    }
    append_utf8(out, code);
    return at + digits;
  }

  void read_symbol(std::string& open) {
    for (const std::string_view symbol : kSymbols) {
      if (text_.substr(at_, symbol.size()) != symbol) continue;
      const char c = symbol[0];
      if (c == '(') open += ')';
      if (c == '[') open += ']';
      if (c == '{') open += '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) fail(fmt::format("unexpected '{}'", c));
        if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
        open.pop_back();
      }
      add(TokenKind::symbol, std::string(symbol));
      return advance(at_ + symbol.size());
    }
    fail(fmt::format("unexpected char {} in a tag", static_cast<int>(static_cast<unsigned char>(text_[at_]))));
  }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace megatrain::jinja
