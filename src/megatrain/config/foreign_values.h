// Values of LLaMA-Factory and the Hugging Face trainer, read as their YAML parser reads them.
#pragma once

#include <map>
#include <string>

namespace megatrain {

// A key of theirs as it was given. Of a mapping, `text` is "{…}" and `entries` has its values by name, with "{…}" for
// one that is no plain value.
struct Foreign {
  std::string text;
  std::string where;  // "FILE:LINE" or "--key"
  bool null = false;
  std::map<std::string, std::string> entries{};
};

using ForeignKeys = std::map<std::string, Foreign>;

// True, False and the like as YAML 1.1 writes them (true, yes, on in small letters, capitals or with a capital), and 1
// and 0; null is false. Throws Error(bad_config) for another value.
bool foreign_flag(const std::string& name, const Foreign& value);

// A number as std::from_chars reads it: without a sign '+' and without underscores between digits (1_000).
// Throws Error(bad_config) for what is no number; a number in octal ("010") is refused rather than read as decimal.
std::string foreign_number(const std::string& name, const Foreign& value);

// The same of a whole number; 500.0 is one.
std::string foreign_whole(const std::string& name, const Foreign& value);

// What the value asks for is switched on: not null, false, 0, empty or none.
bool is_on(const Foreign& value);

}  // namespace megatrain
