// What Python 3 knows of a character: case mappings and classes (Unicode 14; tools/make_jinja_unicode.py writes them).
// unicode/tables.h is another: templates follow Python, tokens follow the library, and their versions of Unicode
// differ.
#pragma once

#include <string_view>

namespace megatrain::jinja {

// UTF-8 of the mapped character, or empty where it maps to itself.
std::string_view upper_of(char32_t c);
std::string_view lower_of(char32_t c);  // without the final sigma's context
std::string_view title_of(char32_t c);

bool is_printable(char32_t c);  // repr() shows it as it is
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);  // what str.title() takes for a letter of a word
bool is_case_ignorable(char32_t c);

}  // namespace megatrain::jinja
