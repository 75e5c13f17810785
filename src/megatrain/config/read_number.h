// A number that a value of the configuration is.
#pragma once

#include <charconv>
#include <string_view>

namespace megatrain {

// False where the text is not one number from its first character to its last.
template <class Number>
bool read_number(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

}  // namespace megatrain
