// JSON on its way out of the program.
#pragma once

#include <string>

namespace megatrain {

// What a result or a file of ours says. A path may hold bytes that are no UTF-8, which JSON cannot; each becomes
// U+FFFD.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace megatrain
