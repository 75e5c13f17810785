// Values of other trainers' files, read as their YAML parser reads them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace megatrain {

// One element of a list, nested names dotted ("roles.assistant"), of a list inside it the elements with commas between.
// A plain element has one entry without a name.
struct ForeignItem {
  std::map<std::string, std::string> entries;
  std::string where;  // "FILE:LINE"
};

// A key of theirs as it was given. Of a mapping, `text` is "{…}" and `entries` has its values by name, with "{…}" for
// one that is no plain value; of a list `text` has the elements with commas between, "{…}" for a mapping.
struct Foreign {
  std::string text;
  std::string where;  // "FILE:LINE" or "--key"
  bool null = false;
  std::map<std::string, std::string> entries{};
  std::string json{};                // of a mapping: all of it, as JSON
  std::vector<ForeignItem> items{};  // of a list
};

using ForeignKeys = std::map<std::string, Foreign>;

// True, False and the like as YAML 1.1 writes them (true, yes, on in small letters, capitals or with a capital), and 1
// and 0; null is false. Throws Error(bad_config) for another value.
bool foreign_flag(const std::string& name, const Foreign& value);

// A number as std::from_chars reads it: without a sign '+' and without underscores between digits (1_000).
// Throws Error(bad_config) for what is no number; a number in octal ("010") is refused rather than read as decimal.
std::string foreign_number(const std::string& name, const Foreign& value);

// The same as a double.
double foreign_double(const std::string& name, const Foreign& value);

// The same of a whole number; 500.0 is one.
std::string foreign_whole(const std::string& name, const Foreign& value);

// What the value asks for is switched on: not null, false, 0, empty or none.
bool is_on(const Foreign& value);

// `pattern` is the name, or ends in * and begins as the name does.
bool matches(const char* pattern, const std::string& name);

}  // namespace megatrain
