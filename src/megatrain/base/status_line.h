// A line for a terminal made of fields, the most important first: those that fit are shown whole, none is cut inside a
// word.
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

// Two spaces between fields, as a file gets it. What a terminal would obey is escaped.
std::string joined(const std::vector<LogField>& fields);

// As many of the first fields as fit `columns`; of the first at least the words that do.
std::string status_line(const std::vector<LogField>& fields, int64_t columns, bool coloured);

// Columns that a terminal gives a text: two for the wide characters of East Asia and for emoji, none for marks that
// combine.
int64_t columns_of(std::string_view text);

// The text between the terminal's codes for a colour.
std::string painted(const std::string& text, LogColour colour);

}  // namespace megatrain
