// A terminal line made of fields, the most important first. Fields that fit are shown whole; no word is cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

enum class LogColour : uint8_t { plain, bold, green, yellow, red, dim };

struct LogField {
  std::string text;
  LogColour colour = LogColour::plain;
};

// All fields with two spaces between them, as written to a file. Terminal escape sequences are escaped.
std::string joined(const std::vector<LogField>& fields);

// As many leading fields as fit `columns`. If even the first does not fit, the words of it that do.
std::string status_line(const std::vector<LogField>& fields, int64_t columns, bool coloured);

// Columns that a text takes on a terminal: two for wide East Asian characters and emoji, none for combining marks.
int64_t columns_of(std::string_view text);

// The text wrapped in the terminal's codes for a colour.
std::string painted(const std::string& text, LogColour colour);

}  // namespace megatrain
