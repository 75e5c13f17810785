// Escapes text for a page.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// For element content and quoted attributes. Control characters that HTML forbids become U+FFFD.
std::string escape_html(std::string_view text);

}  // namespace megatrain
