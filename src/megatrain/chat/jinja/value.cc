#include "megatrain/chat/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "megatrain/chat/jinja/unicode.h"

namespace megatrain::jinja {

namespace {

int depth_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Dict* dict = value.as_dict()) return dict->depth;
  if (value.get<std::shared_ptr<Namespace>>() || value.get<std::shared_ptr<Loop>>()) {
    raise("a namespace or loop inside a list, a dict or a namespace is not supported");
  }
  return 0;
}

size_t joined(size_t a, size_t b) { return std::min(a + b, size_t{1} << 62); }

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) raise(fmt::format("a value nests deeper than {} levels", kMaxValueDepth));
  return depth;
}

std::partial_ordering compare(const BigInteger& whole, double real) {
  if (!std::isfinite(real)) return 0.0 <=> real;
  const auto order = whole <=> BigInteger::of_whole(std::trunc(real));
  return order != 0 ? std::partial_ordering(order) : std::trunc(real) <=> real;
}

// Like Python, never rounds an integer to compare it with a float. Empty if one of them is not a number.
std::optional<std::partial_ordering> compare_numbers(const Value& a, const Value& b) {
  const auto x = small_integer(a), y = small_integer(b);
  if (x && y) return *x <=> *y;
  if (!is_number(a) || !is_number(b)) return std::nullopt;
  const double *p = a.get<double>(), *q = b.get<double>();
  if (p && q) return *p <=> *q;
  if (q) return compare(*whole_number(a), *q);
  if (p) return 0 <=> compare(*whole_number(b), *p);
  return *whole_number(a) <=> *whole_number(b);
}

}  // namespace

Value Value::undefined(std::string message) {
  return {Undefined{std::make_shared<const std::string>(std::move(message))}};
}

Value Value::of(const BigInteger& value) {
  if (const auto small = value.small()) return of(*small);
  if (value.digits().size() > BigInteger::kMaxDigits + 1) {
    raise(fmt::format("an integer grew past {} digits, which is not supported", BigInteger::kMaxDigits));
  }
  return {std::make_shared<const BigInteger>(value)};
}

Value Value::integer(std::string_view digits) {
  const auto value = BigInteger::of_digits(digits);
  if (!value) raise(fmt::format("an integer has to be at most {} decimal digits", BigInteger::kMaxDigits));
  return of(*value);
}

size_t weight(const Value& value) {
  constexpr size_t kScalar = 16;
  if (const Text* text = value.text()) return text->weight() + kScalar;
  if (const Sequence* sequence = value.sequence()) return sequence->weight;
  if (const Dict* dict = value.as_dict()) return dict->weight;
  if (const BigInteger* big = value.big()) return kScalar + 4 * big->limbs();
  size_t sum = kScalar;
  if (const auto* space = value.get<std::shared_ptr<Namespace>>()) {
    for (const auto& [name, item] : (*space)->attributes) sum = joined(sum, weight(item));
  }
  return sum;
}

Value Value::of(Text text) { return {std::make_shared<const Text>(std::move(text))}; }

Value Value::list(std::vector<Value> items, SequenceKind kind) {
  int depth = 0;
  size_t sum = sizeof(Value);
  check_items(items.size());
  for (const Value& item : items) {
    depth = std::max(depth, depth_of(item));
    sum = joined(sum, sizeof(Value) + jinja::weight(item));
  }
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  sequence->weight = sum;
  sequence->items = std::move(items);
  sequence->depth = checked_depth(depth + 1);
  return {std::move(sequence)};
}

Value Value::dict(std::vector<std::pair<Value, Value>> entries, int32_t message) {
  int depth = 0;
  size_t sum = sizeof(Value);
  check_items(entries.size());
  for (const auto& [key, value] : entries) {
    depth = std::max({depth, depth_of(key), depth_of(value)});
    sum = joined(sum, 2 * sizeof(Value) + jinja::weight(key) + jinja::weight(value));
  }
  auto dict = std::make_shared<Dict>();
  dict->weight = sum;
  dict->entries = std::move(entries);
  dict->depth = checked_depth(depth + 1);
  dict->message = message;
  return {std::shared_ptr<const Dict>(std::move(dict))};
}

const BigInteger* Value::big() const {
  const auto* held = get<std::shared_ptr<const BigInteger>>();
  return held ? held->get() : nullptr;
}
const Text* Value::text() const {
  const auto* held = get<std::shared_ptr<const Text>>();
  return held ? held->get() : nullptr;
}
Sequence* Value::sequence() const {
  const auto* held = get<std::shared_ptr<Sequence>>();
  return held ? held->get() : nullptr;
}
const Dict* Value::as_dict() const {
  const auto* held = get<std::shared_ptr<const Dict>>();
  return held ? held->get() : nullptr;
}

bool is_integer(const Value& value) { return value.get<int64_t>() || value.big(); }
bool is_number(const Value& value) { return is_integer(value) || value.get<bool>() || value.get<double>(); }

std::optional<int64_t> small_integer(const Value& value) {
  if (const bool* b = value.get<bool>()) return *b ? 1 : 0;
  if (const int64_t* i = value.get<int64_t>()) return *i;
  return std::nullopt;
}

std::optional<BigInteger> whole_number(const Value& value) {
  if (value.big()) return *value.big();
  const auto small = small_integer(value);
  return small ? std::optional(BigInteger(*small)) : std::nullopt;
}

std::optional<double> real_number(const Value& value) {
  if (const double* real = value.get<double>()) return *real;
  if (const auto small = small_integer(value)) return static_cast<double>(*small);
  if (!value.big()) return std::nullopt;
  const double real = value.big()->to_double();
  if (!std::isfinite(real)) raise("int too large to convert to float");
  return real;
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto small = small_integer(value)) return *small != 0;
  if (const double* real = value.get<double>()) return *real != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->kind == SequenceKind::iterator || !sequence->items.empty();
  }
  if (const Dict* dict = value.as_dict()) return !dict->entries.empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (const auto order = compare_numbers(a, b)) return *order == 0;
  if (a.text() && b.text()) return a.text()->bytes() == b.text()->bytes();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (const Sequence* s = a.sequence(), *t = b.sequence(); s && t) {
    if (s == t) return true;
    if (s->kind != t->kind || s->kind >= SequenceKind::iterator) return false;
    return s->items.size() == t->items.size() && std::equal(s->items.begin(), s->items.end(), t->items.begin(), equal);
  }
  if (const Dict* s = a.as_dict(), *t = b.as_dict(); s && t) {
    if (s->entries.size() != t->entries.size()) return false;
    for (size_t i = 0; i < s->entries.size(); ++i) {
      const auto& [key, value] = s->entries[i];
      const Value* const other = equal(key, t->entries[i].first) ? &t->entries[i].second : find(*t, key);
      if (!other || !equal(value, *other)) return false;
    }
    return true;
  }
  if (const auto* s = a.get<std::shared_ptr<Namespace>>(), *t = b.get<std::shared_ptr<Namespace>>(); s && t)
    return *s == *t;
  if (const auto* s = a.get<std::shared_ptr<const Callable>>(), *t = b.get<std::shared_ptr<const Callable>>(); s && t) {
    return *s == *t;
  }
  return false;
}

bool less(const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (const Undefined* undefined = value->get<Undefined>()) raise(*undefined->message);
  }
  if (const auto order = compare_numbers(a, b)) return *order < 0;
  if (a.text() && b.text()) return a.text()->bytes() < b.text()->bytes();  // UTF-8 sorts like code points
  if (const Sequence* s = a.sequence(), *t = b.sequence();
      s && t && s->kind == t->kind && s->kind <= SequenceKind::tuple) {
    const size_t common = std::min(s->items.size(), t->items.size());
    for (size_t i = 0; i < common; ++i) {
      if (!equal(s->items[i], t->items[i])) return less(s->items[i], t->items[i]);
    }
    return s->items.size() < t->items.size();
  }
  raise(fmt::format("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b)));
}

bool contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    const Text* part = item.text();
    if (!part) raise(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    return find_text(text->bytes(), part->bytes()) != std::string_view::npos;
  }
  if (const Dict* dict = container.as_dict()) return find(*dict, item) != nullptr;
  if (container.is_undefined()) return false;
  if (!container.sequence()) raise(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  const auto items = iterate(container);
  return std::any_of(items.begin(), items.end(), [&](const Value& candidate) { return equal(candidate, item); });
}

const Value* find(const Dict& dict, const Value& key) {
  const auto found = std::find_if(dict.entries.begin(), dict.entries.end(),
                                  [&](const auto& entry) { return equal(entry.first, key); });
  return found == dict.entries.end() ? nullptr : &found->second;
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto found = std::find_if(dict.entries.begin(), dict.entries.end(), [&](const auto& entry) {
    const Text* text = entry.first.text();
    return text && text->bytes() == key;
  });
  return found == dict.entries.end() ? nullptr : &found->second;
}

std::string type_name(const Value& value) {
  struct Namer {
    const Value& value;
    std::string operator()(const Undefined&) const { return "Undefined"; }
    std::string operator()(const None&) const { return "NoneType"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(int64_t) const { return "int"; }
    std::string operator()(const std::shared_ptr<const BigInteger>&) const { return "int"; }
    std::string operator()(double) const { return "float"; }
    std::string operator()(const std::shared_ptr<const Text>&) const { return value.markup ? "Markup" : "str"; }
    std::string operator()(const std::shared_ptr<Sequence>& sequence) const {
      switch (sequence->kind) {
        case SequenceKind::list: return "list";
        case SequenceKind::tuple: return "tuple";
        case SequenceKind::range: return "range";
        case SequenceKind::iterator: return "generator";
        case SequenceKind::keys: return "dict_keys";
        case SequenceKind::values: return "dict_values";
        case SequenceKind::items: return "dict_items";
      }
      return "";
    }
    std::string operator()(const std::shared_ptr<const Dict>&) const { return "dict"; }
    std::string operator()(const std::shared_ptr<Namespace>&) const { return "Namespace"; }
    std::string operator()(const std::shared_ptr<Loop>&) const { return "LoopContext"; }
    std::string operator()(const std::shared_ptr<const Callable>& callable) const {
      return callable->kind == CallableKind::macro ? "Macro" : "function";
    }
  };
  return std::visit(Namer{value}, value.data);
}

std::string object_type_name(const Value& value) {
  if (value.is_none()) return "None";
  if (value.get<std::shared_ptr<Namespace>>()) return "jinja2.utils.Namespace object";
  if (value.get<std::shared_ptr<Loop>>()) return "jinja2.runtime.LoopContext object";
  return type_name(value) + " object";
}

std::string show_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string shortest(buffer, written.ptr);
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(shortest.c_str() + e + 1);
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = value < 0 || (value == 0 && std::signbit(value)) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

void append_repr(const Text& text, Text& out) {
  const std::string_view bytes = text.bytes();
  const bool double_quoted = bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = double_quoted ? '"' : '\'';
  out.append(std::string_view(&quote, 1), text.origin_at(0));
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const char32_t c = next_code(bytes, at);
    const Origin origin = text.origin_at(begin);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.append("\\", origin);
      out.append(bytes.substr(begin, 1), origin);
    } else if (c == '\n') {
      out.append("\\n", origin);
    } else if (c == '\r') {
      out.append("\\r", origin);
    } else if (c == '\t') {
      out.append("\\t", origin);
    } else if (is_printable(c)) {
      out.append(text, begin, at);
    } else {
      const uint32_t code = c;
      out.append(c < 0x100     ? fmt::format("\\x{:02x}", code)
                 : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                               : fmt::format("\\U{:08x}", code),
                 origin);
    }
  }
  out.append(std::string_view(&quote, 1), text.origin_at(bytes.size()));
}

void append_repr(const Value& value, Text& out) {
  const Origin origin{.message = value.source};
  if (const Text* text = value.text()) {
    if (!value.markup) return append_repr(*text, out);
    out.append("Markup(", text->origin_at(0));
    append_repr(*text, out);
    return out.append(")", text->origin_at(text->size()));
  }
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind == SequenceKind::range) return out.append(sequence->shown, origin);
    if (sequence->kind == SequenceKind::iterator) raise("printing an iterator is not supported; add |list");
    const bool tuple = sequence->kind == SequenceKind::tuple;
    if (sequence->kind > SequenceKind::iterator) out.append(type_name(value) + "(", origin);
    out.append(tuple ? "(" : "[", origin);
    bool first = true;
    for (const Value& item : sequence->items) {
      if (!first) out.append(", ", origin);
      first = false;
      append_repr(item, out);
    }
    if (tuple && sequence->items.size() == 1) out.append(",", origin);
    out.append(tuple ? ")" : "]", origin);
    if (sequence->kind > SequenceKind::iterator) out.append(")", origin);
    return;
  }
  if (const Dict* dict = value.as_dict()) {
    out.append("{", origin);
    bool first = true;
    for (const auto& [key, item] : dict->entries) {
      if (!first) out.append(", ", origin);
      first = false;
      append_repr(key, out);
      out.append(": ", origin);
      append_repr(item, out);
    }
    return out.append("}", origin);
  }
  if (value.is_none()) return out.append("None", origin);
  if (value.is_undefined()) return out.append("Undefined", origin);
  if (const bool* b = value.get<bool>()) return out.append(*b ? "True" : "False", origin);
  if (const int64_t* i = value.get<int64_t>()) return out.append(fmt::format("{}", *i), origin);
  if (const BigInteger* big = value.big()) return out.append(big->digits(), origin);
  if (const double* d = value.get<double>()) return out.append(show_float(*d), origin);
  if (const auto* space = value.get<std::shared_ptr<Namespace>>()) {
    out.append("<Namespace {", origin);
    bool first = true;
    for (const auto& [name, item] : (*space)->attributes) {
      out.append((first ? "" : ", ") + show_string(name) + ": ", origin);
      first = false;
      append_repr(item, out);
    }
    return out.append("}>", origin);
  }
  raise(fmt::format("printing a {} is not supported", type_name(value)));
}

}  // namespace

std::string show_string(std::string_view text) {
  Text out;
  append_repr(Text(std::string(text)), out);
  return out.bytes();
}

Text to_repr(const Value& value) {
  Text out;
  append_repr(value, out);
  return out;
}

Text to_text(const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.is_undefined()) return Text();
  return to_repr(value);
}

Value escaped(const Value& value) {
  if (value.markup) return value;
  Text text = to_text(value);
  for (const auto& [from, to] :
       {std::pair{"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}) {
    text = replace(text, from, Text(to), -1);
  }
  Value marked = Value::of(std::move(text));
  marked.markup = true;
  return marked;
}

std::vector<Value> iterate(const Value& value) {
  if (Sequence* sequence = value.sequence()) {
    if (sequence->kind != SequenceKind::iterator) return sequence->items;
    return std::exchange(sequence->items, {});
  }
  std::vector<Value> items;
  if (const Text* text = value.text()) {
    for (Text& part : characters(*text)) items.push_back(Value::of(std::move(part)));
    return items;
  }
  if (const Dict* dict = value.as_dict()) {
    for (const auto& entry : dict->entries) items.push_back(entry.first);
    return items;
  }
  if (value.is_undefined()) return items;
  raise(fmt::format("'{}' object is not iterable", type_name(value)));
}

int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) return static_cast<int64_t>(count_chars(text->bytes()));
  if (const Dict* dict = value.as_dict()) return static_cast<int64_t>(dict->entries.size());
  if (const Sequence* sequence = value.sequence(); sequence && sequence->kind != SequenceKind::iterator) {
    return static_cast<int64_t>(sequence->items.size());
  }
  if (const auto* loop = value.get<std::shared_ptr<Loop>>()) return static_cast<int64_t>((*loop)->items.size());
  raise(fmt::format("object of type '{}' has no len()", type_name(value)));
}

int64_t to_index(const Value& value, std::string_view what) {
  if (const Undefined* undefined = value.get<Undefined>()) raise(*undefined->message);
  const auto integer = small_integer(value);
  if (value.big()) raise(fmt::format("{} is an integer past 64 bits, which is not supported", what));
  if (!integer) raise(fmt::format("{} has to be an integer, not '{}'", what, type_name(value)));
  return *integer;
}

const Text& to_string_argument(const Value& value, std::string_view what) {
  if (const Undefined* undefined = value.get<Undefined>()) raise(*undefined->message);
  const Text* text = value.text();
  if (!text) raise(fmt::format("{} has to be a string, not '{}'", what, type_name(value)));
  return *text;
}

}  // namespace megatrain::jinja
