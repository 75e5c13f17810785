#include "megatrain/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The factor of "B", "kB", "KiB" and so on, in upper or lower case; empty for an unknown unit.
std::optional<int64_t> unit_bytes(std::string_view unit) {
  std::string lower;
  for (const char c : unit) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower == "b") return 1;
  int64_t decimal = 1, binary = 1;
  for (const char prefix : std::string_view("kmgtp")) {
    decimal *= 1000;
    binary *= 1024;
    if (lower == std::string{prefix, 'b'}) return decimal;
    if (lower == std::string{prefix, 'i', 'b'}) return binary;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& text, const std::string& reason) {
  fail_config(
      fmt::format("\"{}\" is not a size: {}; write a number of bytes such as 1048576, or a number with a unit "
                  "such as 24GiB, 1.5TiB (binary) or 512MB (decimal)",
                  text, reason));
}

}  // namespace

int64_t parse_bytes(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  while (!rest.empty() && rest.back() == ' ') rest.remove_suffix(1);
  if (rest.empty()) refuse(text, "it is empty");
  if (rest.front() == '-') refuse(text, "it is negative");

  size_t length = 0;
  while (length < rest.size() && is_digit(rest[length])) ++length;
  if (length == 0) refuse(text, "it does not begin with a digit");
  const bool fraction = length + 1 < rest.size() && rest[length] == '.' && is_digit(rest[length + 1]);
  if (fraction) {
    ++length;
    while (length < rest.size() && is_digit(rest[length])) ++length;
  }
  const std::string_view number = rest.substr(0, length);
  rest.remove_prefix(length);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (fraction && rest.empty()) refuse(text, "a fraction needs a unit");
  const std::optional<int64_t> unit = rest.empty() ? 1 : unit_bytes(rest);
  if (!unit) refuse(text, fmt::format("\"{}\" is not a unit", rest));

  const char* end = number.data() + number.size();
  if (fraction) {
    double value = 0;
    const bool read = std::from_chars(number.data(), end, value, std::chars_format::fixed).ec == std::errc();
    const double bytes = std::round(value * static_cast<double>(*unit));
    if (!read || bytes >= 0x1.0p63) refuse(text, "it is larger than 8 EiB");
    return static_cast<int64_t>(bytes);
  }
  int64_t value = 0, bytes = 0;
  const bool read = std::from_chars(number.data(), end, value).ec == std::errc();
  if (!read || __builtin_mul_overflow(value, *unit, &bytes)) refuse(text, "it is larger than 8 EiB");
  return bytes;
}

namespace {

// Decimals that give a number from 0.1 up three significant digits.
int decimals_of(double value) { return value < 0.9995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0; }

std::string scaled_bytes(int64_t bytes, bool up) {
  const char* sign = bytes < 0 ? "-" : "";
  double value = std::fabs(static_cast<double>(bytes));
  if (value < 1000) return fmt::format("{}{:.0f} B", sign, value);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (value /= 1024; value >= 999.5; value /= 1024) ++unit;
  const int decimals = decimals_of(value);
  const double last = std::pow(10.0, decimals);
  if (up) value = std::ceil(value * last) / last;
  return fmt::format("{}{:.{}f} {}", sign, value, decimals, kUnits[unit]);
}

}  // namespace

std::string format_bytes(int64_t bytes) { return scaled_bytes(bytes, false); }
std::string format_bytes_up(int64_t bytes) { return scaled_bytes(bytes, true); }

std::string format_count(int64_t count) {
  const char* sign = count < 0 ? "-" : "";
  double value = std::fabs(static_cast<double>(count));
  if (value < 1000) return fmt::format("{}{:.0f}", sign, value);
  static constexpr char kUnits[] = {'K', 'M', 'B', 'T'};
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < std::size(kUnits); value /= 1000) ++unit;
  return fmt::format("{}{:.{}f}{}", sign, value, decimals_of(value), kUnits[unit]);
}

std::string counted(int64_t count, const std::string& one, const std::string& many) {
  return fmt::format("{} {}", count, count == 1 ? one : many.empty() ? one + "s" : many);
}

std::string format_seconds(double seconds) {
  return std::fabs(seconds) < 999.5 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string format_duration(double seconds) {
  const int64_t s = std::llround(std::clamp(seconds, 0.0, 1e12));
  constexpr int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (s < kMinute) return fmt::format("{}s", s);
  if (s < kHour) return fmt::format("{}m{:02}s", s / kMinute, s % kMinute);
  if (s < kDay) return fmt::format("{}h{:02}m", s / kHour, s % kHour / kMinute);
  return fmt::format("{}d{:02}h", s / kDay, s % kDay / kHour);
}

}  // namespace megatrain
