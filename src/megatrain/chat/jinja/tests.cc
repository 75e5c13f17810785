// Jinja's tests: x is name(...).
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/chat/jinja/interpreter.h"
#include "megatrain/chat/jinja/unicode.h"

namespace megatrain::jinja {
namespace {

bool has_order(const Value& value) {  // supports len() and []
  const Sequence* sequence = value.sequence();
  return value.text() || value.as_dict() || value.is_undefined() || (sequence && sequence->kind <= SequenceKind::range);
}

int64_t remainder(const Value& value, int64_t by) {
  if (value.big() && by == 2) return value.big()->odd() ? 1 : 0;
  const int64_t integer = to_index(value, "the tested value");
  if (by == 0) raise("integer modulo by zero");
  return by == -1 ? 0 : (integer % by + by) % by;
}

// Like str.islower and str.isupper: at least one letter of this case and none of another.
bool all_cased(const std::string& bytes, bool lower) {
  bool any = false;
  for (size_t at = 0; at < bytes.size();) {
    const char32_t c = next_code(bytes, at);
    if (lower ? is_upper(c) || is_title(c) : is_lower(c) || is_title(c)) return false;
    any = any || (lower ? is_lower(c) : is_upper(c));
  }
  return any;
}

bool same(const Value& a, const Value& b) {
  if (a.data.index() != b.data.index()) return false;
  if (a.is_none() || a.get<bool>()) return equal(a, b);
  if (a.sequence()) return a.sequence() == b.sequence();
  if (a.as_dict()) return a.as_dict() == b.as_dict();
  raise("the test 'sameas' on this type is not supported");
}

}  // namespace

bool run_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto none = [&] { const Parameters p(arguments, name, {}); };
  const auto operand = [&]() -> const Value& {
    const Parameters p(arguments, name, {"other"}, 1);
    return *p[0];
  };
  if (name == "defined") return none(), !value.is_undefined();
  if (name == "undefined") return none(), value.is_undefined();
  if (name == "none") return none(), value.is_none();
  if (name == "boolean") return none(), value.get<bool>() != nullptr;
  if (name == "true") return none(), value.get<bool>() && *value.get<bool>();
  if (name == "false") return none(), value.get<bool>() && !*value.get<bool>();
  if (name == "string") return none(), value.text() != nullptr;
  if (name == "mapping") return none(), value.as_dict() != nullptr;
  if (name == "number") return none(), is_number(value);
  if (name == "integer") return none(), is_integer(value);
  if (name == "float") return none(), value.get<double>() != nullptr;
  if (name == "sequence") return none(), has_order(value);
  if (name == "iterable") return none(), has_order(value) || value.sequence() || value.get<std::shared_ptr<Loop>>();
  if (name == "callable") return none(), value.get<std::shared_ptr<const Callable>>() || value.is_undefined();
  if (name == "odd") return none(), remainder(value, 2) == 1;
  if (name == "even") return none(), remainder(value, 2) == 0;
  if (name == "divisibleby") return remainder(value, to_index(operand(), "divisibleby's operand")) == 0;
  if (name == "lower") return none(), all_cased(to_text(value).bytes(), true);
  if (name == "upper") return none(), all_cased(to_text(value).bytes(), false);
  if (name == "escaped") return none(), value.markup;
  if (name == "sameas") return same(value, operand());
  if (name == "in") return contains(operand(), value);
  if (name == "eq" || name == "equalto" || name == "==") return equal(value, operand());
  if (name == "ne" || name == "!=") return !equal(value, operand());
  if (name == "lt" || name == "lessthan" || name == "<") return less(value, operand());
  if (name == "gt" || name == "greaterthan" || name == ">") return less(operand(), value);
  if (name == "le" || name == "<=") return less(value, operand()) || equal(value, operand());
  if (name == "ge" || name == ">=") return less(operand(), value) || equal(value, operand());
  if (name == "filter") return is_filter(to_string_argument(value, "the name of a filter").bytes());
  raise(fmt::format("No test named '{}'.", name));
}

}  // namespace megatrain::jinja
