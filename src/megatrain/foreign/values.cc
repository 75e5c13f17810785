#include "megatrain/foreign/values.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/among.h"
#include "megatrain/base/error.h"

namespace megatrain {
namespace {

constexpr const char* kTrue[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "1"};
constexpr const char* kFalse[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "0"};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

[[noreturn]] void refuse(const std::string& name, const Foreign& value, const char* expected) {
  fail_config(fmt::format("{}: {} is {}, expected {}", value.where, name,
                          value.null ? "null" : fmt::format("'{}'", value.text), expected));
}

// Returns an empty string unless the text is a decimal number.
std::string plain_number(std::string_view text, double& number) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (text[i] == '_' && between) continue;
    if (text[i] != '+' || i != 0) plain += text[i];
  }
  const size_t first = plain.starts_with('-') ? 1 : 0;
  if (plain.size() <= first || (!is_digit(plain[first]) && plain[first] != '.')) return "";
  if (plain.size() > first + 1 && plain[first] == '0' && is_digit(plain[first + 1])) return "";  // octal in YAML 1.1
  const char* end = plain.data() + plain.size();
  const auto [stop, error] = std::from_chars(plain.data(), end, number);
  return error == std::errc() && stop == end ? plain : "";
}

}  // namespace

bool foreign_flag(const std::string& name, const Foreign& value) {
  if (value.null || among(kFalse, value.text)) return false;
  if (!among(kTrue, value.text)) refuse(name, value, "true or false");
  return true;
}

std::string foreign_number(const std::string& name, const Foreign& value) {
  double number = 0;
  const std::string plain = value.null ? "" : plain_number(value.text, number);
  if (plain.empty()) refuse(name, value, "a number, such as 5e-5, 0.1 or 1000");
  return plain;
}

double foreign_double(const std::string& name, const Foreign& value) {
  const std::string plain = foreign_number(name, value);
  double number = 0;
  std::from_chars(plain.data(), plain.data() + plain.size(), number);
  return number;
}

std::string foreign_whole(const std::string& name, const Foreign& value) {
  double number = 0;
  const std::string plain = value.null ? "" : plain_number(value.text, number);
  if (plain.empty() || number != std::floor(number) || std::fabs(number) > 1e15) refuse(name, value, "a whole number");
  return fmt::format("{:.0f}", number);
}

bool is_on(const Foreign& value) {
  return !value.null && !value.text.empty() && !among(kFalse, value.text) && value.text != "0.0" &&
         value.text != "none" && value.text != "null" && value.text != "{}";
}

bool matches(const char* pattern, const std::string& name) {
  const std::string_view text = pattern;
  return text.ends_with('*') ? name.starts_with(text.substr(0, text.size() - 1)) : name == text;
}

}  // namespace megatrain
