// Converts between JSON and a template's values.
#pragma once

#include <string_view>

#include "megatrain/chat/jinja/value.h"
#include "megatrain/io/json.h"

namespace megatrain::jinja {

// An integer beyond 64 bits, which nlohmann's JSON has no type for: a binary value with its decimal digits ("-123…").
nlohmann::ordered_json json_integer(std::string_view digits);

// Marks every part of the value as coming from message `source` (-1: from none).
Value from_json(const nlohmann::ordered_json& json, int32_t source = -1);

}  // namespace megatrain::jinja
