// Python's two ways to format: "…" % values and "…".format(…). Both understand flags, width, precision and the types
// s, r, d, i, f, e, g, x, X, o and %.
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {
namespace {

struct Spec {
  bool left = false, centered = false, zero = false, plus = false, space = false, aligned = false, grouped = false;
  Text fill{" "};
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int64_t read_count(std::string_view text, size_t& at) {
  int64_t value = 0;
  while (at < text.size() && is_digit(text[at])) {
    value = value * 10 + (text[at++] - '0');
    if (value > 100'000) raise("a width or precision above 100000 is not supported");
  }
  return value;
}

double formatted_real(const Value& value) {
  const auto real = real_number(value);
  if (!real) raise(fmt::format("a formatted number has to be one, not '{}'", type_name(value)));
  return *real;
}

std::string number_text(const Value& value, const Spec& spec) {
  const double* real = value.get<double>();
  const bool wants_real =
      spec.type == 'f' || spec.type == 'F' || spec.type == 'e' || spec.type == 'g' || spec.type == '%';
  std::string digits;
  bool negative = false;
  if (wants_real) {
    double number = formatted_real(value);
    if (spec.type == '%') number *= 100;
    if (!std::isfinite(number)) raise("formatting a number that is not finite is not supported");
    negative = std::signbit(number);
    const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
    const double magnitude = std::fabs(number);
    digits = spec.type == 'e'   ? fmt::format("{:.{}e}", magnitude, precision)
             : spec.type == 'g' ? fmt::format("{:.{}g}", magnitude, precision)
                                : fmt::format("{:.{}f}", magnitude, precision);
    if (spec.type == '%') digits += '%';
  } else {
    if (real && !std::isfinite(*real)) raise("cannot convert float infinity or NaN to integer");
    const Value integer = real ? Value::of(BigInteger::of_whole(std::trunc(*real))) : value;
    if (spec.type == 'x' || spec.type == 'X' || spec.type == 'o') {
      const int64_t small = to_index(integer, "a number formatted in another base");
      negative = small < 0;
      const uint64_t magnitude = negative ? ~static_cast<uint64_t>(small) + 1 : static_cast<uint64_t>(small);
      digits = spec.type == 'x'   ? fmt::format("{:x}", magnitude)
               : spec.type == 'X' ? fmt::format("{:X}", magnitude)
                                  : fmt::format("{:o}", magnitude);
    } else {
      const auto whole = whole_number(integer);
      if (!whole) raise(fmt::format("a formatted number has to be an integer, not '{}'", type_name(integer)));
      negative = whole->negative();
      digits = (negative ? -*whole : *whole).digits();
    }
  }
  if (spec.grouped) {
    size_t whole = digits.find_first_not_of("0123456789");
    if (whole == std::string::npos) whole = digits.size();
    for (size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, ",");
  }
  const std::string sign = negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  if (spec.zero && !spec.left) {
    const size_t width = static_cast<size_t>(spec.width);
    if (sign.size() + digits.size() < width) {
      if (spec.grouped) raise("zeros and a thousands separator together are not supported");
      digits.insert(0, width - sign.size() - digits.size(), '0');
    }
  }
  return sign + digits;
}

Text padded(Text text, const Spec& spec, bool right_by_default) {
  const int64_t missing = spec.width - static_cast<int64_t>(count_chars(text.bytes()));
  if (missing <= 0) return text;
  int64_t before = right_by_default ? missing : 0;
  if (spec.aligned) before = spec.centered ? missing / 2 : spec.left ? 0 : missing;
  Text out = repeat(spec.fill, before);
  out.append(text);
  out.append(repeat(spec.fill, missing - before));
  return out;
}

Text truncated(const Text& text, const Spec& spec) {
  return spec.precision < 0 ? text : text.sub(0, char_offset(text.bytes(), static_cast<size_t>(spec.precision)));
}

Text percent_piece(const Value& value, Spec spec, bool markup) {
  if (spec.left) spec.aligned = true;
  switch (spec.type) {
    case 's': return padded(truncated(markup ? *escaped(value).text() : to_text(value), spec), spec, true);
    case 'r':
      if (markup) raise("the format %r in a string marked safe or escaped is not supported");
      return padded(truncated(to_repr(value), spec), spec, true);
    case 'd':
    case 'i':
    case 'f':
    case 'F':
    case 'e':
    case 'g':
    case 'x':
    case 'X':
    case 'o':
      if (value.text() || value.as_dict() || value.sequence() || value.is_none()) {
        raise(fmt::format("%{} format: a number is required, not {}", spec.type, type_name(value)));
      }
      return padded(Text(number_text(value, spec), {.message = value.source}), spec, true);
    default: raise(fmt::format("unsupported format character '{}'", spec.type));
  }
}

}  // namespace

Value format_percent(const Value& source, const Value& values) {
  const Text& format = *source.text();
  const std::string_view text = format.bytes();
  const Sequence* tuple =
      values.sequence() && values.sequence()->kind == SequenceKind::tuple ? values.sequence() : nullptr;
  size_t used = 0;
  const auto next = [&]() -> const Value& {
    if (tuple ? used >= tuple->items.size() : used > 0) raise("not enough arguments for format string");
    return tuple ? tuple->items[used++] : (++used, values);
  };
  Text out;
  bool keyed = false;
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    out.append(format, at, percent);
    at = percent;
    if (at == text.size()) break;
    ++at;
    Spec spec;
    const Value* value = nullptr;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string_view::npos) raise("incomplete format key");
      if (!values.as_dict()) raise("format requires a mapping");
      value = find(*values.as_dict(), text.substr(at + 1, end - at - 1));
      if (!value) raise(fmt::format("the format's key '{}' is missing", text.substr(at + 1, end - at - 1)));
      keyed = true;
      at = end + 1;
    }
    for (; at < text.size() && std::string_view("-0+ #").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '#') raise("the flag '#' of a format is not supported");
      spec.left |= text[at] == '-';
      spec.zero |= text[at] == '0';
      spec.plus |= text[at] == '+';
      spec.space |= text[at] == ' ';
    }
    spec.width = read_count(text, at);
    if (at < text.size() && text[at] == '.') spec.precision = read_count(text, ++at);
    if (at >= text.size()) raise("incomplete format");
    spec.type = text[at++];
    if (spec.type == '%') {
      out.append("%", format.origin_at(at - 1));
      continue;
    }
    out.append(percent_piece(value ? *value : next(), spec, source.markup));
  }
  const bool all = keyed || (tuple ? used == tuple->items.size() : used == 1 || values.as_dict());
  if (!all && !(values.sequence() && !tuple)) raise("not all arguments converted during string formatting");
  Value formatted = Value::of(std::move(out));
  formatted.markup = source.markup;
  return formatted;
}

namespace {

Spec read_brace_spec(const Text& source) {
  const std::string_view text = source.bytes();
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t where) {
    return where < text.size() && (text[where] == '<' || text[where] == '>' || text[where] == '^');
  };
  const size_t first = text.empty() ? 0 : utf8_length(text[0]);
  if (is_align(first)) {
    spec.fill = source.sub(0, first);
    at = first;
  }
  if (is_align(at)) {
    spec.aligned = true;
    spec.left = text[at] == '<';
    spec.centered = text[at] == '^';
    ++at;
  }
  if (at < text.size() && (text[at] == '+' || text[at] == ' ' || text[at] == '-')) {
    spec.plus = text[at] == '+';
    spec.space = text[at] == ' ';
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    spec.zero = !spec.aligned;
    ++at;
  }
  spec.width = read_count(text, at);
  if (at < text.size() && text[at] == ',') {
    spec.grouped = true;
    ++at;
  }
  if (at < text.size() && text[at] == '.') spec.precision = read_count(text, ++at);
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) raise(fmt::format("the format '{}' is not supported", text));
  return spec;
}

Text brace_piece(const Value& value, const Text& source) {
  const Spec spec = read_brace_spec(source);
  if (value.text()) {
    if ((spec.type != 0 && spec.type != 's') || spec.zero || spec.plus || spec.grouped) {
      raise(fmt::format("the format '{}' of a string is not supported", source.bytes()));
    }
    return padded(truncated(*value.text(), spec), spec, false);
  }
  if (source.empty()) return to_text(value);
  if (!is_number(value)) raise(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
  const bool plain = spec.type == 0 && (value.get<double>() || value.get<bool>());
  const bool known = spec.type == 0 || std::string_view("dfFegxXo%").find(spec.type) != std::string_view::npos;
  if (plain || !known || (value.get<double>() && spec.type == 'd')) {
    raise(fmt::format("the format '{}' of a {} is not supported", source.bytes(), type_name(value)));
  }
  return padded(Text(number_text(value, spec), {.message = value.source}), spec, true);
}

}  // namespace

Value format_braces(Interpreter& interpreter, const Text& format, const Arguments& arguments) {
  const std::string_view text = format.bytes();
  Text out;
  size_t automatic = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      const size_t next = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, next);
      at = next;
      continue;
    }
    if (at + 1 < text.size() && text[at + 1] == c) {
      out.append(format, at, at + 1);
      at += 2;
      continue;
    }
    const size_t end = text.find('}', at);
    if (c == '}' || end == std::string_view::npos)
      raise("Single '" + std::string(1, c) + "' encountered in format string");
    const size_t colon = std::min(text.find(':', at), end);
    std::string_view field = text.substr(at + 1, colon - at - 1);
    const Text spec = colon < end ? format.sub(colon + 1, end) : Text();
    if (field.find('!') != std::string_view::npos || spec.bytes().find('{') != std::string::npos) {
      raise("a conversion or a nested field in a format is not supported");
    }
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    const std::string name(field.substr(0, name_end));
    Value value;
    if (name.empty() || is_digit(name[0])) {
      const size_t index = name.empty() ? automatic++ : static_cast<size_t>(std::atoll(name.c_str()));
      if (index >= arguments.positional.size()) raise("Replacement index out of range for positional args tuple");
      value = arguments.positional[index];
    } else {
      bool found = false;
      for (const auto& [key, item] : arguments.named) {
        if (key != name) continue;
        value = item;
        found = true;
      }
      if (!found) raise("the format's key '" + name + "' is missing");
    }
    field.remove_prefix(name_end);
    while (!field.empty()) {
      const bool bracket = field[0] == '[';
      const size_t stop = bracket ? field.find(']') : std::min(field.find_first_of(".[", 1), field.size());
      if (stop == std::string_view::npos) raise("Missing ']' in format string");
      const std::string part(field.substr(1, stop - 1));
      const bool index = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
      value = !bracket
                  ? interpreter.attribute(value, part)
                  : interpreter.item(value, index ? Value::of(int64_t{std::atoll(part.c_str())}) : Value::of(part));
      field.remove_prefix(bracket ? stop + 1 : stop);
    }
    out.append(brace_piece(value, spec));
    at = end + 1;
  }
  return Value::of(std::move(out));
}

}  // namespace megatrain::jinja
