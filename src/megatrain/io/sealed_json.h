// JSON documents that carry their own checksum, so that a flipped digit or letter is detected.
#pragma once

#include "megatrain/io/json.h"

namespace megatrain {

// Adds "checksum": xxh3_128 of the compact text of the rest, keys in ascending order.
nlohmann::json sealed(nlohmann::json document);

// Whether "checksum" matches the rest.
bool seal_holds(const nlohmann::json& document);

}  // namespace megatrain
