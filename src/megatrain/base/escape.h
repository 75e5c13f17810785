// Text from files on its way to a terminal: nothing in it may move the cursor, set a title or hide what stands beside
// it.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// Control characters (C0 without line ends and tabs, DEL, C1), marks that turn the direction of writing, and bytes that
// are no UTF-8 become \x1b, \u202e and the like; all else stays as it is.
std::string escape_controls(std::string_view text);

// The same with line ends and tabs escaped too, for what has to stay on its line.
std::string escape_line(std::string_view text);

}  // namespace megatrain
