// Serializes JSON for results and files.
#pragma once

#include <string>

namespace megatrain {

// A path may hold invalid UTF-8, which JSON cannot represent: each such byte becomes U+FFFD.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace megatrain
