// Text as a JSON string.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// Appends the text in quotes, with control characters escaped. Other bytes are copied, also those that are not UTF-8.
void append_json_quoted(std::string& out, std::string_view text);

}  // namespace megatrain
