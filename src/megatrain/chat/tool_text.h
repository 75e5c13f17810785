// Pieces of text that hold tool calls.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

inline std::string trimmed_text(std::string_view text) {
  const char* const kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) - begin + 1));
}

// The end of the JSON object or list that begins at `begin`; npos if it does not end, or nests deeper than 64 levels.
inline size_t json_end(std::string_view text, size_t begin) {
  constexpr int kMostLevels = 64;
  int depth = 0;
  bool in_string = false;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMostLevels) return std::string_view::npos;
    } else if ((c == '}' || c == ']') && --depth <= 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace megatrain
