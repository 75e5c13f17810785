#include "megatrain/base/shell_word.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/escape.h"

namespace megatrain {

namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./=:,@%+").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return std::string(word);
  const bool hidden = escape_line(word) != word;
  std::string quoted = hidden ? "$'" : "'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (hidden && (byte < 0x20 || byte >= 0x7F)) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else if (hidden && (c == '\'' || c == '\\')) {
      quoted += '\\';
      quoted += c;
    } else {
      quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
  }
  return quoted + "'";
}

std::string unexpanded_hint(std::string_view path) {
  const bool home = path.starts_with("~"), variable = path.find('$') != std::string_view::npos;
  if (!home && !variable) return "";
  return fmt::format("; {} is not expanded here: write the whole path", home ? "~" : path.substr(path.find('$')));
}

}  // namespace megatrain
