// Python's operators, slices and dict entries.
#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {
namespace {

[[noreturn]] void raise_unsupported(const std::string& op, const Value& a, const Value& b) {
  raise(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

int64_t floor_divide(int64_t a, int64_t b) {  // not for the smallest integer and -1
  if (b == 0) raise("integer division or modulo by zero");
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double modulo(double a, double b) {
  if (b == 0) raise("float modulo");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest != 0 ? rest : std::copysign(0.0, b);
}

// Like Python's float_divmod: computes the quotient after subtracting the remainder, and rounds it.
double floor_divide(double a, double b) {
  if (b == 0) raise("float floor division by zero");
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

// By squaring, from the exponent's highest bit. Results that grow too large are refused on the way.
Value power(const BigInteger& base, uint64_t exponent) {
  Value result = Value::of(int64_t{1});
  for (int bit = std::bit_width(exponent) - 1; bit >= 0; --bit) {
    const BigInteger root = *whole_number(result);
    result = Value::of((exponent >> bit & 1) != 0 ? root * root * base : root * root);
  }
  return result;
}

// Cost of repeated squaring: the last one takes as long as all before it.
size_t power_steps(const Value& result) {
  constexpr size_t kSquarings = 64;
  const size_t limbs = result.big() ? result.big()->limbs() : 1;
  return kSquarings + limbs * limbs / 8;
}

Value big_operation(const std::string& op, const BigInteger& a, const BigInteger& b) {
  if (op == "+") return Value::of(a + b);
  if (op == "-") return Value::of(a - b);
  if (op == "*") return Value::of(a * b);
  if (op == "**" && b.small() && *b.small() >= 0) return power(a, static_cast<uint64_t>(*b.small()));
  raise(fmt::format("the operator '{}' on an integer past 64 bits is not supported", op));
}

Value integer_operation(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  const bool least = b == -1 && a == INT64_MIN;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "//" && least) {
    return Value::of(-BigInteger(a));
  } else if (op == "//") {
    result = floor_divide(a, b);
  } else if (op == "%") {
    const int64_t quotient = b == -1 ? 0 : floor_divide(a, b);
    result = b == -1 ? 0 : a - quotient * b;
  } else if (op == "**") {
    if (b >= 0) return power(BigInteger(a), static_cast<uint64_t>(b));
    if (a == 0) raise("0.0 cannot be raised to a negative power");
    return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
  } else {
    if (b == 0) raise("division by zero");
    return Value::of(static_cast<double>(a) / static_cast<double>(b));
  }
  return overflow ? big_operation(op, BigInteger(a), BigInteger(b)) : Value::of(result);
}

Value real_operation(const std::string& op, double a, double b) {
  if (op == "+") return Value::of(a + b);
  if (op == "-") return Value::of(a - b);
  if (op == "*") return Value::of(a * b);
  if (op == "//") return Value::of(floor_divide(a, b));
  if (op == "%") return Value::of(modulo(a, b));
  if (op == "**") {
    if (a == 0 && b < 0) raise("0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) raise("a complex number is not supported");
    const double result = std::pow(a, b);
    if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) raise("Result too large");
    return Value::of(result);
  }
  if (b == 0) raise("float division by zero");
  return Value::of(a / b);
}

Value repeated(const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (const Text* text = value.text()) {
    Value out = Value::of(repeat(*text, times));
    out.markup = value.markup;
    return out;
  }
  const Sequence& sequence = *value.sequence();
  if (sequence.items.empty()) times = 0;
  check_items(static_cast<size_t>(times));
  check_items(sequence.items.size() * static_cast<size_t>(times));
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return Value::list(std::move(items), sequence.kind);
}

bool is_repeatable(const Value& value) {
  return value.text() || (value.sequence() && value.sequence()->kind <= SequenceKind::tuple);
}

}  // namespace

Value Interpreter::add(const Value& a, const Value& b) {
  if (a.text() && b.text()) {
    const bool markup = a.markup || b.markup;  // markupsafe escapes unmarked strings
    Text text = markup ? *escaped(a).text() : *a.text();
    text.append(markup ? *escaped(b).text() : *b.text());
    if (turn_ >= 0) text.stamp_turn(turn_);
    Value sum = Value::of(std::move(text));
    sum.markup = markup;
    return sum;
  }
  const Sequence *s = a.sequence(), *t = b.sequence();
  if (s && t && s->kind == t->kind && s->kind <= SequenceKind::tuple) {
    std::vector<Value> items = s->items;
    items.insert(items.end(), t->items.begin(), t->items.end());
    return Value::list(std::move(items), s->kind);
  }
  if (a.text()) raise(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  if (s && s->kind == SequenceKind::list)
    raise(fmt::format("can only concatenate list (not \"{}\") to list", type_name(b)));
  raise_unsupported("+", a, b);
}

Value Interpreter::binary(const std::string& op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (const Undefined* undefined = value->get<Undefined>()) raise(*undefined->message);
  }
  touch(shallow_weight(a) + shallow_weight(b));
  const auto charged = [this](const std::string& done, Value result) {
    if (done == "**") spend(power_steps(result));
    return result;
  };
  const auto x = small_integer(a), y = small_integer(b);
  if (x && y) return charged(op, integer_operation(op, *x, *y));
  if (const auto p = whole_number(a), q = whole_number(b); p && q)
    return charged(op, big_operation(op, *p, *q));  // at most a few hundred limbs
  if (const auto r = real_number(a), s = real_number(b); r && s) return real_operation(op, *r, *s);
  if (op == "+") return add(a, b);
  if (op == "*" && is_repeatable(a) && y) return repeated(a, *y);
  if (op == "*" && is_repeatable(b) && x) return repeated(b, *x);
  if (op == "%" && a.text()) {
    touch(weight(b));
    return format_percent(a, b);
  }
  raise_unsupported(op, a, b);
}

void set_entry(std::vector<std::pair<Value, Value>>& entries, const Value& key, const Value& value) {
  const bool hashable = !key.as_dict() && !(key.sequence() && key.sequence()->kind == SequenceKind::list);
  if (!hashable) raise(fmt::format("unhashable type: '{}'", type_name(key)));
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return equal(entry.first, key); });
  if (found == entries.end()) {
    entries.emplace_back(key, value);
  } else {
    found->second = value;
  }
}

Value slice_value(const Value& object, const Value& start, const Value& stop, const Value& step) {
  const Text* text = object.text();
  const Sequence* sequence = object.sequence();
  if (!text && !(sequence && sequence->kind <= SequenceKind::tuple)) {
    if (sequence && sequence->kind == SequenceKind::range) raise("a slice of a range is not supported");
    raise(fmt::format("'{}' object is not subscriptable by a slice", type_name(object)));
  }
  const int64_t by = step.is_none() ? 1 : to_index(step, "a slice's step");
  if (by == 0) raise("slice step cannot be zero");
  const int64_t count = length(object);
  const auto bound = [&](const Value& value, int64_t absent) {
    if (value.is_none()) return absent;
    int64_t index = to_index(value, "a slice's bound");
    if (index < 0) index = index < -count ? -1 : index + count;
    return by > 0 ? std::clamp<int64_t>(index, 0, count) : std::clamp<int64_t>(index, -1, count - 1);
  };
  const int64_t first = bound(start, by > 0 ? 0 : count - 1);
  const int64_t last = bound(stop, by > 0 ? count : -1);
  if (text && by == 1) {
    if (first >= last) return Value::of(Text());
    const size_t begin = char_offset(text->bytes(), static_cast<size_t>(first));
    const size_t end =
        begin + char_offset(std::string_view(text->bytes()).substr(begin), static_cast<size_t>(last - first));
    return Value::of(text->sub(begin, end));
  }
  std::vector<int64_t> indices;
  if (by > 0) {
    for (int64_t i = first; i < last; i += std::min(by, count)) indices.push_back(i);
  } else {
    for (int64_t i = first; i > last; i += std::max(by, -count)) indices.push_back(i);
  }
  if (text) {
    const auto parts = characters(*text);
    Text out;
    for (const int64_t i : indices) out.append(parts[static_cast<size_t>(i)]);
    return Value::of(std::move(out));
  }
  std::vector<Value> items;
  for (const int64_t i : indices) items.push_back(sequence->items[static_cast<size_t>(i)]);
  Value sliced = Value::list(std::move(items), sequence->kind);
  sliced.source = object.source;
  return sliced;
}

}  // namespace megatrain::jinja
