// Log lines go to standard error; standard output belongs to results.
#pragma once

#include <string>
#include <vector>

#include "megatrain/base/status_line.h"

namespace megatrain {

void log_info(const std::string& message);
void log_warn(const std::string& message);

// On a terminal a line that the next one of this kind replaces, as much of it as fits the width (base/status_line.h);
// log_info and log_warn, and end_log_status, leave the last one standing. Elsewhere the same as log_info, whole.
void log_status(const std::string& message);
void log_status(const std::vector<LogField>& fields);
void end_log_status();
bool log_is_terminal();

// Whether what goes to this descriptor is coloured: it is a terminal, and NO_COLOR is not set (or empty).
bool is_coloured(int descriptor);

// Tests and --json callers that want silence.
void set_log_quiet(bool quiet);

}  // namespace megatrain
