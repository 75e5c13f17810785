// Log lines go to standard error; standard output belongs to results.
#pragma once

#include <string>
#include <vector>

#include "megatrain/base/status_line.h"

namespace megatrain {

void log_info(const std::string& message);
void log_warn(const std::string& message);

// On a terminal, writes a line that the next status replaces, cut to the width (base/status_line.h). log_info, log_warn
// and end_log_status leave the last status standing. Elsewhere it is the same as log_info, uncut.
void log_status(const std::string& message);
void log_status(const std::vector<LogField>& fields);
void end_log_status();
bool log_is_terminal();

// Whether output to this descriptor is coloured: it is a terminal that knows escapes, and NO_COLOR is unset or empty.
bool is_coloured(int descriptor);

// For tests and for --json callers that want silence.
void set_log_quiet(bool quiet);

}  // namespace megatrain
