// Descriptors 0, 1 and 2, which the caller may have closed or whose reader may be gone.
#pragma once

#include <string>

namespace megatrain {

// Opens /dev/null for each one that is closed. Otherwise the next file opened would take its number, and log lines or
// results would go into that file. Must run before anything else is opened.
void open_standard_streams();

// Writes to standard output, unbuffered. Returns the reason if it failed, otherwise an empty string.
std::string write_result(const std::string& text);
// The same, but throws Error(io). `what` names the text in the message: "result", "answer", "address".
void print_result(const std::string& text, const char* what);

// Writes a help text or a script, when that is all the program prints. A reader that leaves early, such as `head`, is
// not an error; other failures throw Error(io).
void print_text(const std::string& text);

// Prints "megatrain: MESSAGE" on standard error as one line of at most about 2,000 bytes; ignored if that fails.
void say_error(const std::string& message);

}  // namespace megatrain
