// Escapes text from files before it goes to a terminal, so that nothing in it can move the cursor, set a title or hide
// the text beside it.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// Escapes control characters (C0 except line ends and tabs, DEL, C1), bidirectional marks and invalid UTF-8 as \x1b,
// \u202e and the like. Everything else stays as it is.
std::string escape_controls(std::string_view text);

// Also escapes line ends and tabs, for text that has to stay on one line.
std::string escape_line(std::string_view text);

}  // namespace megatrain
