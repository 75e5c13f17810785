// Functions a chat template may call: range, dict, namespace, raise_exception, strftime_now.
#include <algorithm>

#include <fmt/format.h>

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // the sandbox's limit

Value range(const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) raise("range expected 1 to 3 arguments");
  const int64_t start = given.size() > 1 ? to_index(given[0], "range's start") : 0;
  const int64_t stop = to_index(given[given.size() > 1 ? 1 : 0], "range's stop");
  const int64_t step = given.size() > 2 ? to_index(given[2], "range's step") : 1;
  if (step == 0) raise("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      raise(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
    }
    items.push_back(Value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  Value value = Value::list(std::move(items), SequenceKind::range);
  value.sequence()->shown = given.size() > 2 ? fmt::format("range({}, {}, {})", start, stop, step)
                                             : fmt::format("range({}, {})", start, stop);
  return value;
}

std::vector<std::pair<Value, Value>> dict_entries(Interpreter& interpreter, const Arguments& arguments,
                                                  std::string_view function) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) raise(fmt::format("{} expected at most 1 argument", function));
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.as_dict()) {
      entries = from.as_dict()->entries;
    } else {
      interpreter.spend(iterate_steps(from));
      for (const Value& item : iterate(from)) {
        interpreter.spend(iterate_steps(item));
        interpreter.touch(entries.size() * 8 + weight(item));
        const auto pair = iterate(item);
        if (pair.size() != 2) raise("a dict is made of pairs");
        set_entry(entries, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    interpreter.touch(entries.size() * 8);
    set_entry(entries, Value::of(name), value);
  }
  return entries;
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  const auto space = std::make_shared<Namespace>();
  for (const auto& [key, value] : dict_entries(interpreter, arguments, "namespace")) {
    const std::string& name = to_string_argument(key, "a namespace's attribute").bytes();
    if (name.starts_with("_")) {
      raise("Chat templates cannot store underscore-prefixed attributes on a namespace, but got " + show_string(name));
    }
    Value::list({value});  // raises for values that must not be stored
    space->attributes.emplace_back(name, value);
  }
  return {space};
}

Value strftime_now(const Interpreter& interpreter, const Arguments& arguments) {
  const Parameters p(arguments, "strftime_now", {"format"}, 1);
  const std::string& format = to_string_argument(*p[0], "the date's format").bytes();
  if (format.empty()) return Value::of("");
  if (format.size() > 256) raise("a date's format of more than 256 bytes is not supported");
  std::string out(4096, '\0');
  const std::string marked = format + "x";  // to distinguish an empty result from a failure
  const size_t written = std::strftime(out.data(), out.size(), marked.c_str(), &interpreter.now());
  if (written == 0) raise("the date could not be formatted");
  out.resize(written - 1);
  if (!is_valid_utf8(out)) raise("the formatted date is not valid UTF-8");
  return Value::of(out);
}

}  // namespace

bool is_global(std::string_view name) {
  constexpr std::string_view names[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Value run_global(Interpreter& interpreter, const std::string& name, const Arguments& arguments) {
  if (name == "range") {
    Value made = range(arguments);
    interpreter.spend(made.sequence()->items.size());
    return made;
  }
  if (name == "dict") return interpreter.make_dict(dict_entries(interpreter, arguments, "dict"));
  if (name == "namespace") return make_namespace(interpreter, arguments);
  if (name == "strftime_now") return strftime_now(interpreter, arguments);
  const Parameters p(arguments, name, {"message"}, 1);
  interpreter.spend(weight(*p[0]));
  throw Raise(to_text(*p[0]).bytes());
}

}  // namespace megatrain::jinja
