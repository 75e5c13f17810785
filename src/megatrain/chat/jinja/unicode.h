// Python 3's character data: case mappings and classes (Unicode 14), written by tools/make_jinja_unicode.py.
// unicode/tables.h has another table: templates follow Python, tokens follow the library, and their Unicode versions
// differ.
#pragma once

#include <string_view>

namespace megatrain::jinja {

// UTF-8 of the mapped character, or empty if it maps to itself.
std::string_view upper_of(char32_t c);
std::string_view lower_of(char32_t c);  // without the context rule for the final sigma
std::string_view title_of(char32_t c);

bool is_printable(char32_t c);  // repr() does not escape it
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);  // what str.title() treats as a letter of a word
bool is_case_ignorable(char32_t c);

}  // namespace megatrain::jinja
