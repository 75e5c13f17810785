// How the interpreter computes values; its statements are in interpreter.cc.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {
namespace {

// The first message whose data the value holds; -1 if there is none.
int32_t first_message(const Value& value) {
  if (const Text* text = value.text()) {
    for (const Text::Run& run : text->runs()) {
      if (run.origin.message >= 0) return run.origin.message;
    }
    return -1;
  }
  int32_t message = value.source;
  if (const Sequence* sequence = value.sequence()) {
    for (size_t i = 0; message < 0 && i < sequence->items.size(); ++i) message = first_message(sequence->items[i]);
  } else if (const Dict* dict = value.as_dict()) {
    for (size_t i = 0; message < 0 && i < dict->entries.size(); ++i) message = first_message(dict->entries[i].second);
  }
  return message;
}

}  // namespace

Value Interpreter::make_dict(std::vector<std::pair<Value, Value>> entries) {
  const auto is_role = [](const auto& entry) { return entry.first.text() && entry.first.text()->bytes() == "role"; };
  const auto role = std::find_if(entries.begin(), entries.end(), is_role);
  if (role == entries.end()) return Value::dict(std::move(entries));
  int32_t message = first_message(role->second);
  for (const auto& [key, value] : entries) {
    if (message >= 0) break;
    touch(weight(value));
    message = first_message(value);
  }
  return Value::dict(std::move(entries), message);
}

Value Interpreter::evaluate(const Expression& expression) {
  line_ = expression.line;
  spend(1);
  switch (expression.kind) {
    case ExpressionKind::constant: return expression.constant;
    case ExpressionKind::name: return lookup(expression.name);
    case ExpressionKind::call:
    case ExpressionKind::binary:
    case ExpressionKind::concat:
    case ExpressionKind::list:
    case ExpressionKind::tuple:
    case ExpressionKind::dict: return held(evaluate_parts(expression));
    default: return evaluate_parts(expression);
  }
}

Value Interpreter::evaluate_parts(const Expression& expression) {
  const auto& items = expression.items;
  switch (expression.kind) {
    case ExpressionKind::constant: return expression.constant;
    case ExpressionKind::name: return lookup(expression.name);
    case ExpressionKind::list:
    case ExpressionKind::tuple: {
      std::vector<Value> values;
      for (const auto& element : items) values.push_back(evaluate(*element));
      return Value::list(std::move(values),
                         expression.kind == ExpressionKind::list ? SequenceKind::list : SequenceKind::tuple);
    }
    case ExpressionKind::dict: return evaluate_dict(expression);
    case ExpressionKind::attribute: return attribute(evaluate(*items[0]), expression.name);
    case ExpressionKind::item: {
      const Value object = evaluate(*items[0]);
      if (items[1]->kind == ExpressionKind::slice) return evaluate_slice(object, *items[1]);
      const Value key = evaluate(*items[1]);
      return item(object, key);
    }
    case ExpressionKind::call: {
      const Value callee = evaluate(*items[0]);
      const Arguments arguments = evaluate_arguments(expression);
      line_ = expression.line;
      return call(callee, arguments);
    }
    case ExpressionKind::filter: {
      const Value value = items[0] ? evaluate(*items[0]) : *block_;
      const Arguments arguments = evaluate_arguments(expression);
      line_ = expression.line;
      return apply_filter(expression.name, value, arguments);
    }
    case ExpressionKind::test: {
      const Value value = evaluate(*items[0]);
      return Value::of(apply_test(expression.name, value, evaluate_arguments(expression)));
    }
    case ExpressionKind::negative:
    case ExpressionKind::positive: return evaluate_sign(expression);
    case ExpressionKind::logical_not: return Value::of(!truth(evaluate(*items[0])));
    case ExpressionKind::logical_and: {
      Value left = evaluate(*items[0]);
      return truth(left) ? evaluate(*items[1]) : left;
    }
    case ExpressionKind::logical_or: {
      Value left = evaluate(*items[0]);
      return truth(left) ? left : evaluate(*items[1]);
    }
    case ExpressionKind::conditional:
      if (truth(evaluate(*items[0]))) return evaluate(*items[1]);
      if (items[2]) return evaluate(*items[2]);
      return Value::undefined(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.", expression.line));
    case ExpressionKind::compare: return evaluate_compare(expression);
    case ExpressionKind::concat: return evaluate_concat(expression);
    case ExpressionKind::binary: {
      const Value left = evaluate(*items[0]);
      const Value right = evaluate(*items[1]);
      line_ = expression.line;
      return binary(expression.name, left, right);
    }
    case ExpressionKind::slice: raise("a slice among several keys is not supported");
    case ExpressionKind::namespace_field: break;
  }
  raise("this expression is not supported");
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  const auto& items = expression.items;
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < items.size(); i += 2) {
    const Value key = evaluate(*items[i]);
    touch(entries.size() * 8 + weight(key));
    set_entry(entries, key, evaluate(*items[i + 1]));
  }
  return make_dict(std::move(entries));
}

Value Interpreter::evaluate_sign(const Expression& expression) {
  const Value value = evaluate(*expression.items[0]);
  if (const Undefined* undefined = value.get<Undefined>()) raise(*undefined->message);
  const bool negative = expression.kind == ExpressionKind::negative;
  if (const double* real = value.get<double>()) return Value::of(negative ? -*real : *real);
  if (!is_number(value)) {
    raise(fmt::format("bad operand type for unary {}: '{}'", negative ? '-' : '+', type_name(value)));
  }
  return binary(negative ? "-" : "+", Value::of(int64_t{0}), value);
}

Value Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.items[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.items[i + 1]);
    const std::string& op = expression.operators[i];
    line_ = expression.line;
    bool holds = false;
    const bool search = op.ends_with("in");
    search ? spend(contains_steps(right, left)) : compare(left, right);
    if (op == "==") holds = equal(left, right);
    if (op == "!=") holds = !equal(left, right);
    if (op == "<") holds = less(left, right);
    if (op == ">") holds = less(right, left);
    if (op == "<=") holds = less(left, right) || equal(left, right);
    if (op == ">=") holds = less(right, left) || equal(left, right);
    if (op == "in") holds = contains(right, left);
    if (op == "not in") holds = !contains(right, left);
    if (!holds) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Interpreter::evaluate_slice(const Value& object, const Expression& slice) {
  if (const Undefined* undefined = object.get<Undefined>()) raise(*undefined->message);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) bounds[i] = slice.items[i] ? evaluate(*slice.items[i]) : Value::none();
  spend(slice_steps(object, !bounds[2].is_none()));
  Value sliced = slice_value(object, bounds[0], bounds[1], bounds[2]);
  sliced.markup = object.markup;
  return held(std::move(sliced));
}

Value Interpreter::evaluate_concat(const Expression& expression) {
  Text text;
  for (const auto& part : expression.items) text.append(text_of(evaluate(*part)));
  if (turn_ >= 0) text.stamp_turn(turn_);
  return Value::of(std::move(text));
}

Arguments Interpreter::evaluate_arguments(const Expression& expression) {
  Arguments arguments;
  for (size_t i = 1; i < expression.items.size(); ++i) arguments.positional.push_back(evaluate(*expression.items[i]));
  for (const auto& [name, value] : expression.named) arguments.named.emplace_back(name, evaluate(*value));
  if (expression.spread_positional) {
    const Value spread = evaluate(*expression.spread_positional);
    spend(iterate_steps(spread));
    for (Value& value : iterate(spread)) arguments.positional.push_back(std::move(value));
  }
  if (expression.spread_named) {
    const Value named = evaluate(*expression.spread_named);
    if (!named.as_dict()) raise("argument after ** must be a mapping, not " + type_name(named));
    for (const auto& [key, value] : named.as_dict()->entries) {
      arguments.named.emplace_back(to_string_argument(key, "a keyword").bytes(), value);
    }
  }
  return arguments;
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (const Undefined* undefined = object.get<Undefined>()) raise(*undefined->message);
  if (const auto* space = object.get<std::shared_ptr<Namespace>>()) {
    if (const Value* known = find_variable((*space)->attributes, name)) return *known;
  }
  if (const auto* held = object.get<std::shared_ptr<Loop>>()) {
    const Loop& loop = **held;
    const int64_t index = static_cast<int64_t>(loop.index), count = static_cast<int64_t>(loop.items.size());
    if (name == "index") return Value::of(index + 1);
    if (name == "index0") return Value::of(index);
    if (name == "revindex") return Value::of(count - index);
    if (name == "revindex0") return Value::of(count - index - 1);
    if (name == "first") return Value::of(index == 0);
    if (name == "last") return Value::of(index + 1 == count);
    if (name == "length") return Value::of(count);
    if (name == "depth") return Value::of(loop.depth + 1);
    if (name == "depth0") return Value::of(loop.depth);
    if (name == "previtem")
      return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return index + 1 < count ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  }
  if (const Sequence* sequence = object.sequence(); sequence && sequence->grouped) {
    if (name == "grouper") return sequence->items[0];
    if (name == "list") return sequence->items[1];
  }
  if (name.starts_with("__") || changes_object(object, name)) {
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  if (is_number(object)) {
    for (const std::string_view known :
         {"real", "imag", "numerator", "denominator", "conjugate", "bit_length", "is_integer", "hex"}) {
      if (name == known) raise(fmt::format("the attribute '{}' of a number is not supported", name));
    }
  }
  if (has_method(object, name)) {
    return {std::make_shared<const Callable>(
        Callable{.kind = CallableKind::method, .name = std::string(name), .self = object})};
  }
  if (const Dict* dict = object.as_dict()) {
    spend(find_steps(*dict, name.size()));
    if (const Value* value = find(*dict, name)) return *value;
  }
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", object_type_name(object), name));
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (const Undefined* undefined = object.get<Undefined>()) raise(*undefined->message);
  if (const Dict* dict = object.as_dict()) {
    spend(find_steps(*dict, weight(key)));
    if (const Value* value = find(*dict, key)) return *value;
  }
  const bool is_index = key.get<int64_t>() || key.get<bool>();
  if (const Sequence* sequence = object.sequence(); sequence && is_index && sequence->kind <= SequenceKind::range) {
    const int64_t count = static_cast<int64_t>(sequence->items.size());
    int64_t index = to_index(key, "an index");
    if (index < 0) index += count;
    if (index >= 0 && index < count) return sequence->items[static_cast<size_t>(index)];
  }
  if (const Text* text = object.text(); text && is_index) {
    touch(text->size());
    int64_t index = to_index(key, "an index");
    if (index < 0) index += length(object);
    if (index >= 0) {
      const size_t begin = char_offset(text->bytes(), static_cast<size_t>(index));
      if (begin < text->size()) {
        Value found = Value::of(text->sub(begin, begin + utf8_length(text->bytes()[begin])));
        found.markup = object.markup;
        return found;
      }
    }
  }
  if (const Text* name = key.text()) {
    const Dict* dict = object.as_dict();
    if (!dict || has_method(object, name->bytes()) || changes_object(object, name->bytes()))
      return attribute(object, name->bytes());
    return Value::undefined(
        fmt::format("'{}' has no attribute {}", object_type_name(object), show_string(name->bytes())));
  }
  spend(weight(key));
  return Value::undefined(fmt::format("{} has no element {}", object_type_name(object), to_repr(key).bytes()));
}

}  // namespace megatrain::jinja
