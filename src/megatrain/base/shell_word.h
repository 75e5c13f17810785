// A word as a person types it into a POSIX shell, for commands that are printed to be pasted.
#pragma once

#include <string>
#include <string_view>

namespace megatrain {

// Returns the word itself if the shell takes it literally, otherwise in single quotes. Words with control characters or
// invalid UTF-8 become $'\x1b', which bash, zsh and ksh read.
std::string shell_word(std::string_view word);

// "; ~ is not expanded here, …" for a path in which a shell would have expanded something; otherwise empty.
std::string unexpanded_hint(std::string_view path);

}  // namespace megatrain
