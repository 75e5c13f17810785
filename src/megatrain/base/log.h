// Log lines go to standard error; standard output belongs to results.
#pragma once

#include <string>

namespace megatrain {

void log_info(const std::string& message);
void log_warn(const std::string& message);

// On a terminal a line that the next one of this kind replaces, cut to the terminal's width; log_info and log_warn, and
// end_log_status, leave the last one standing. Elsewhere the same as log_info.
void log_status(const std::string& message);
void end_log_status();
bool log_is_terminal();

// Tests and --json callers that want silence.
void set_log_quiet(bool quiet);

}  // namespace megatrain
