#include "megatrain/chat/jinja/numbers.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace megatrain::jinja {
namespace {

// Removes Python's single underscores between digits; empty if one is misplaced.
std::optional<std::string> without_underscores(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit_at = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<Value> read_integer(const Text& text, int64_t base) {
  auto digits = without_underscores(strip(text, std::nullopt, Side::both).bytes());
  if (!digits || digits->empty()) return std::nullopt;
  const bool negative = (*digits)[0] == '-';
  if (negative || (*digits)[0] == '+') digits->erase(0, 1);
  if (base == 16 && (digits->starts_with("0x") || digits->starts_with("0X"))) digits->erase(0, 2);
  if (base == 8 && (digits->starts_with("0o") || digits->starts_with("0O"))) digits->erase(0, 2);
  if (base == 2 && (digits->starts_with("0b") || digits->starts_with("0B"))) digits->erase(0, 2);
  if (digits->empty() || (*digits)[0] == '-') return std::nullopt;
  if (base == 10) {
    const auto whole = BigInteger::of_digits((negative ? "-" : "") + *digits);
    return whole ? std::optional(Value::of(*whole)) : std::nullopt;
  }
  int64_t value = 0;
  const auto read = std::from_chars(digits->data(), digits->data() + digits->size(), value, static_cast<int>(base));
  if (read.ptr != digits->data() + digits->size()) return std::nullopt;
  if (read.ec != std::errc()) raise("an integer past 64 bits in another base than 10 is not supported");
  return Value::of(negative ? -value : value);
}

std::optional<double> read_real(const Text& text) {
  auto digits = without_underscores(strip(text, std::nullopt, Side::both).bytes());
  if (!digits || digits->empty()) return std::nullopt;
  if ((*digits)[0] == '+') digits->erase(0, 1);
  if (digits->empty() || (*digits)[0] == '+') return std::nullopt;
  double value = 0;
  const auto read = std::from_chars(digits->data(), digits->data() + digits->size(), value);
  if (read.ptr != digits->data() + digits->size()) return std::nullopt;
  if (read.ec != std::errc()) value = std::strtod(digits->c_str(), nullptr);
  return value;
}

std::optional<double> real_of(const Value& value) {
  if (const Undefined* undefined = value.get<Undefined>()) raise(*undefined->message);
  if (const Text* text = value.text()) return read_real(*text);
  return real_number(value);
}

Value truncated(double value) {
  if (!std::isfinite(value)) raise("cannot convert float infinity or NaN to integer");
  return Value::of(BigInteger::of_whole(std::trunc(value)));
}

// Rounds decimal digits, with an optional sign and fraction, to tens, hundreds and so on, half to even.
std::string rounded(std::string_view text, size_t zeros) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const size_t dot = std::min(text.find('.'), text.size());
  const std::string_view whole = text.substr(0, dot);
  const std::string_view fraction = text.substr(std::min(dot + 1, text.size()));
  const std::string padded =
      std::string(zeros + 1 > whole.size() ? zeros + 1 - whole.size() : 0, '0') + std::string(whole);
  const std::string head = padded.substr(0, padded.size() - zeros);
  const std::string rest = padded.substr(head.size()) + std::string(fraction);
  const std::string half = "5" + std::string(rest.size() - 1, '0');
  const bool odd = (head.back() - '0') % 2 != 0;
  BigInteger kept = *BigInteger::of_digits(head);
  if (rest > half || (rest == half && odd)) kept = kept + BigInteger(1);
  return (negative ? "-" : "") + kept.digits() + std::string(zeros, '0');
}

}  // namespace

Value filter_abs(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "abs", {});
  if (const double* real = value.get<double>()) return Value::of(std::fabs(*real));
  const auto whole = whole_number(value);
  if (!whole) return Value::of(to_index(value, "abs's operand"));  // raises with its type
  return Value::of(whole->negative() ? -*whole : *whole);
}

Value filter_int(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "int", {"default", "base"});
  const int64_t base = p[1] ? to_index(*p[1], "int's base") : 10;
  if (base < 2 || base > 36) raise("int's base has to be from 2 to 36");
  const Value absent = p[0] ? *p[0] : Value::of(int64_t{0});
  if (const Text* text = value.text()) {
    if (const auto integer = read_integer(*text, base)) return *integer;
    const auto real = read_real(*text);
    return real && std::isfinite(*real) ? truncated(*real) : absent;
  }
  if (const double* real = value.get<double>()) {
    if (std::isnan(*real)) return absent;
    return truncated(*real);
  }
  if (const Undefined* undefined = value.get<Undefined>()) raise(*undefined->message);
  const auto whole = whole_number(value);
  return whole ? Value::of(*whole) : absent;
}

Value filter_float(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "float", {"default"});
  if (const auto real = real_of(value)) return Value::of(*real);
  return p[0] ? *p[0] : Value::of(0.0);
}

Value filter_round(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "round", {"precision", "method"});
  const int64_t precision = p[0] ? to_index(*p[0], "round's precision") : 0;
  if (precision < -300 || precision > 15) raise("a precision of round below -300 or above 15 is not supported");
  const std::string method = p[1] ? to_text(*p[1]).bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor") raise("method must be common, ceil or floor");
  const auto number = value.text() ? std::nullopt : real_of(value);
  if (!number) raise(fmt::format("type {} doesn't define __round__ method", type_name(value)));
  if (method == "common") {
    if (!value.get<double>()) {
      const std::string digits = whole_number(value)->digits();
      return precision < 0 ? Value::integer(rounded(digits, static_cast<size_t>(-precision))) : Value::integer(digits);
    }
    if (!std::isfinite(*number)) return value;
    if (precision < 0) {
      const std::string exact = fmt::format("{:.1074f}", *number);
      return Value::of(std::strtod(rounded(exact, static_cast<size_t>(-precision)).c_str(), nullptr));
    }
    return Value::of(std::strtod(fmt::format("{:.{}f}", *number, precision).c_str(), nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *number * scale;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

}  // namespace megatrain::jinja
