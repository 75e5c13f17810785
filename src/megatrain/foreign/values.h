// Values of other trainers' files, parsed as their YAML parser does.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace megatrain {

// One element of a list. Nested names are dotted ("roles.assistant"), and a nested list is its elements joined by
// commas. A plain element has one entry without a name.
struct ForeignItem {
  std::map<std::string, std::string> entries;
  std::string where;  // "FILE:LINE"
};

// A key of theirs as given. For a mapping, `text` is "{…}" and `entries` has the values by name, with "{…}" for one
// that is not a scalar. For a list, `text` has the elements joined by commas, with "{…}" for a mapping.
struct Foreign {
  std::string text;
  std::string where;  // "FILE:LINE" or "--key"
  bool null = false;
  std::map<std::string, std::string> entries{};
  std::string json{};                // for a mapping: all of it as JSON
  std::vector<ForeignItem> items{};  // for a list
};

using ForeignKeys = std::map<std::string, Foreign>;

// YAML 1.1 booleans (true, yes and on, in lower case, upper case or capitalised, and their opposites), 1 and 0; null is
// false. Throws Error(bad_config) for any other value.
bool foreign_flag(const std::string& name, const Foreign& value);

// The number in the form that std::from_chars reads: without a '+' sign and without underscores between digits (1_000).
// Throws Error(bad_config) if it is not a number. Octal ("010") is refused rather than read as decimal.
std::string foreign_number(const std::string& name, const Foreign& value);

// The same as a double.
double foreign_double(const std::string& name, const Foreign& value);

// The same for an integer; 500.0 is accepted.
std::string foreign_whole(const std::string& name, const Foreign& value);

// Whether the value enables something: it is not null, false, 0, empty or none.
bool is_on(const Foreign& value);

// Whether `pattern` equals the name, or ends in * and the rest is a prefix of it.
bool matches(const char* pattern, const std::string& name);

}  // namespace megatrain
