// Dates and times as text, in the form of ISO 8601.
#pragma once

#include <cstdint>
#include <string>

namespace megatrain {

void append_date(std::string& out, int64_t days);  // since 1970-01-01: "2026-11-19"
// `per_second` is the unit: 1000 for milliseconds. A fraction is written if there is one: "20:15:00.250".
void append_time(std::string& out, int64_t since_midnight, int64_t per_second);
void append_timestamp(std::string& out, int64_t since_1970, int64_t per_second, bool utc);  // "2026-11-19T20:15:00Z"

}  // namespace megatrain
