// JSON of a sample: keys stay in the order of the text, as templates print them.
#pragma once

#include <string_view>

#include "megatrain/io/json.h"

namespace megatrain {

// Strict JSON: UTF-8, no comments, no duplicate keys, nothing after the value, at most 64 levels. The message of
// Error(bad_input) follows a place ("FILE:LINE: ") and has no full stop. An integer beyond 64 bits is a
// jinja::json_integer.
nlohmann::ordered_json parse_sample_json(std::string_view text);

// "a number", "a list", ...: for messages.
const char* kind_of(const nlohmann::ordered_json& value);

}  // namespace megatrain
