// A word as a person types it into a POSIX shell, for commands that are printed to be pasted.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// Itself where the shell takes it as it stands; else between single quotes, or where it has control characters or bytes
// that are no UTF-8 as $'\x1b', which bash, zsh and ksh read.
std::string shell_word(std::string_view word);

}  // namespace megatrain
