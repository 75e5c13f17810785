// The descriptors 0, 1 and 2, which a caller may have closed or whose reader may be gone.
#pragma once

#include <string>

namespace megatrain {

// Opens /dev/null in the place of each that is closed. Otherwise the next file that is opened would take its number,
// and log lines or results would go into that file. Before anything else is opened.
void open_standard_streams();

// Writes to standard output at once; empty when it is all there, else why not.
std::string write_result(const std::string& text);
// The same; throws Error(io) where it is not, with what it was to be: "result", "answer", "address".
void print_result(const std::string& text, const char* what);

// Writes a help text or a script, all that the program has to say. A reader that leaves early, as `head` does, has had
// what it wanted; throws Error(io) for another reason.
void print_text(const std::string& text);

// "megatrain: MESSAGE" on standard error, one line of at most about 2,000 bytes; dropped when that cannot be written.
void say_error(const std::string& message);

}  // namespace megatrain
