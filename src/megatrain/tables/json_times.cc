#include "megatrain/tables/json_times.h"

#include <iterator>

#include <fmt/format.h>

namespace megatrain {
namespace {

constexpr int64_t kSecondsOfDay = 86400;

int64_t floor_divide(int64_t value, int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

}  // namespace

// The calendar repeats every 400 years. Years begin in March here, so that the leap day is the last.
void append_date(std::string& out, int64_t days) {
  constexpr int64_t kDaysToMarchOfYear0 = 719468, kDaysOf400Years = 146097;
  const int64_t since = days + kDaysToMarchOfYear0;
  const int64_t era = floor_divide(since, kDaysOf400Years);
  const int64_t day = since - era * kDaysOf400Years;
  const int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
  const int64_t day_of_year = day - (365 * year + year / 4 - year / 100);
  const int64_t month = (5 * day_of_year + 2) / 153;
  const int64_t day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
  fmt::format_to(std::back_inserter(out), "{:04}-{:02}-{:02}", year + era * 400 + (month >= 10 ? 1 : 0),
                 month < 10 ? month + 3 : month - 9, day_of_month);
}

void append_time(std::string& out, int64_t since_midnight, int64_t per_second) {
  const int64_t seconds = floor_divide(since_midnight, per_second), fraction = since_midnight - seconds * per_second;
  fmt::format_to(std::back_inserter(out), "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
  if (fraction == 0) return;
  const int digits = per_second == 1'000 ? 3 : per_second == 1'000'000 ? 6 : 9;
  fmt::format_to(std::back_inserter(out), ".{:0{}}", fraction, digits);
}

void append_timestamp(std::string& out, int64_t since_1970, int64_t per_second, bool utc) {
  const int64_t days = floor_divide(since_1970, kSecondsOfDay * per_second);
  append_date(out, days);
  out += 'T';
  append_time(out, since_1970 - days * kSecondsOfDay * per_second, per_second);
  if (utc) out += 'Z';
}

}  // namespace megatrain
