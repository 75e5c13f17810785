// Parses numbers of the configuration.
#pragma once

#include <charconv>
#include <string_view>

namespace megatrain {

// Returns false unless the whole text is one number.
template <class Number>
bool read_number(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

}  // namespace megatrain
