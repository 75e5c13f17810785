// Between JSON and a template's values.
#pragma once

#include <nlohmann/json.hpp>

#include "megatrain/text/jinja/value.h"

namespace megatrain::jinja {

// Every part of the value is from message `source` (-1: from none).
Value from_json(const nlohmann::ordered_json& json, int32_t source = -1);

}  // namespace megatrain::jinja
