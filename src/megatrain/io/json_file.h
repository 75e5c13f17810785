// JSON with errors a person can act on: the file, the line, what to do. Duplicate keys are refused.
#pragma once

#include <string>
#include <string_view>

#include "megatrain/io/json.h"

namespace megatrain {

// Strict JSON: no comments, no duplicate keys, nothing after the value, at most 64 levels. Throws Error(bad_input);
// `where` names the text ("DIR/config.json") and `advice` ends the sentence.
nlohmann::json parse_json(std::string_view text, const std::string& where, const std::string& advice);

nlohmann::json read_json_file(const std::string& path);

}  // namespace megatrain
