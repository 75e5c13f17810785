// JSON lines of a file that a person wrote: each with its number, for errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace megatrain {

struct JsonLine {
  std::string where;  // "FILE, line 3"
  int64_t number = 0;
  nlohmann::ordered_json row;  // an object
};

// Every line that is not blank. Throws Error(bad_input) for one that is no JSON object, and for a file without any.
std::vector<JsonLine> read_json_lines(const std::string& path);

// A field that must be a string.
std::string text_field(const JsonLine& line, const char* name);

// A conversation: an array of {"role": ..., "content": ...} that is not empty.
nlohmann::ordered_json messages_field(const JsonLine& line);

}  // namespace megatrain
