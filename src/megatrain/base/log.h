// Log lines go to standard error; standard output belongs to results.
#pragma once

#include <string>

namespace megatrain {

void log_info(const std::string& message);
void log_warn(const std::string& message);

// Tests and --json callers that want silence.
void set_log_quiet(bool quiet);

}  // namespace megatrain
