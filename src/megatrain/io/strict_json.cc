#include "megatrain/io/strict_json.h"

namespace megatrain {

std::string json_reason(const std::string& what) {
  size_t begin = what.find("syntax error");
  if (begin == std::string::npos) begin = std::min(what.find("] ") + 2, what.size());  // after the library's own tag
  const std::string text = what.substr(begin);
  return text.substr(0, text.find("; last read"));
}

TextPlace text_place(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const size_t newline = before.rfind('\n');
  return {.line = 1 + std::count(before.begin(), before.end(), '\n'),
          .column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1};
}

}  // namespace megatrain
