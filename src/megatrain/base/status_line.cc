#include "megatrain/base/status_line.h"

#include <fmt/format.h>

#include "megatrain/base/escape.h"
#include "megatrain/base/utf8.h"

namespace megatrain {

namespace {

constexpr const char* kBetween = "  ";

int64_t columns_of_code(uint32_t code) {
  if ((code >= 0x0300 && code <= 0x036F) || code == 0x200B || code == 0x200D || (code >= 0xFE00 && code <= 0xFE0F))
    return 0;
  const bool wide = (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
                    (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
                    (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
                    (code >= 0xFFE0 && code <= 0xFFE6) || (code >= 0x1F300 && code <= 0x1FAFF) ||
                    (code >= 0x20000 && code <= 0x3FFFD);
  return wide ? 2 : 1;
}

// As many whole words of the text as fit.
std::string words_within(const std::string& text, int64_t columns) {
  if (columns_of(text) <= columns) return text;
  std::string kept;
  for (size_t end = text.find(' '); end != std::string::npos; end = text.find(' ', end + 1)) {
    if (columns_of(text.substr(0, end)) > columns) break;
    kept = text.substr(0, end);
  }
  return kept;
}

const char* code_of(LogColour colour) {
  switch (colour) {
    case LogColour::plain: return "";
    case LogColour::bold: return "\x1b[1m";
    case LogColour::green: return "\x1b[32m";
    case LogColour::yellow: return "\x1b[33m";
    case LogColour::red: return "\x1b[31m";
    case LogColour::dim: return "\x1b[2m";
  }
  return "";
}

}  // namespace

int64_t columns_of(std::string_view text) {
  int64_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    size_t bad = 0, end = 0;
    const std::string_view rest = text.substr(at);
    const size_t size = valid_utf8_length(rest, bad);
    columns += size == 0 ? 1 : columns_of_code(next_code(rest, end));
    at += size == 0 ? 1 : size;
  }
  return columns;
}

std::string painted(const std::string& text, LogColour colour) {
  return colour == LogColour::plain || text.empty() ? text : fmt::format("{}{}\x1b[0m", code_of(colour), text);
}

std::string joined(const std::vector<LogField>& fields) {
  std::string line;
  for (const LogField& field : fields) line += (line.empty() ? "" : kBetween) + escape_line(field.text);
  return line;
}

std::string status_line(const std::vector<LogField>& fields, int64_t columns, bool coloured) {
  std::string line;
  int64_t used = 0;
  for (const LogField& field : fields) {
    std::string text = escape_line(field.text);
    if (used == 0) {
      text = words_within(text, columns);
    } else if (used + std::ssize(std::string_view(kBetween)) + columns_of(text) > columns) {
      break;
    }
    if (text.empty()) break;
    const std::string between = used == 0 ? "" : kBetween;
    used += std::ssize(between) + columns_of(text);
    line += between + (coloured ? painted(text, field.colour) : text);
  }
  return line;
}

}  // namespace megatrain
