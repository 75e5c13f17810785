// JSON documents that carry their own checksum, so that a flipped digit or letter is found.
#pragma once

#include "megatrain/io/json.h"

namespace megatrain {

// The object with "checksum": xxh3_128 of the compact text of the rest, keys in ascending order.
nlohmann::json sealed(nlohmann::json document);

// Whether "checksum" is that of the rest.
bool seal_holds(const nlohmann::json& document);

}  // namespace megatrain
