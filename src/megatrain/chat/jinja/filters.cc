// Jinja's filters, with transformers' tojson.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/among.h"
#include "megatrain/chat/jinja/interpreter.h"
#include "megatrain/chat/jinja/numbers.h"
#include "megatrain/chat/jinja/text_filters.h"

namespace megatrain::jinja {
namespace {

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);
using Items = std::vector<Value>;

bool flag(const Value* value, bool absent = false) { return value ? truth(*value) : absent; }

// The value at "a.b.0" in an item, each part looked up like x["a"].
Value walk(Interpreter& interpreter, Value item, const Value& path, const Value* absent) {
  std::vector<Value> parts;
  if (const Text* text = path.text()) {
    for (const Text& part : split(*text, ".", -1, false)) {
      const std::string& bytes = part.bytes();
      const bool digits =
          !bytes.empty() && bytes.find_first_not_of("0123456789") == std::string::npos && bytes.size() < 10;
      parts.push_back(digits ? Value::of(int64_t{std::atoi(bytes.c_str())}) : Value::of(part));
    }
  } else {
    parts.push_back(path);
  }
  for (const Value& part : parts) {
    item = interpreter.item(item, part);
    if (absent && !absent->is_none() && item.is_undefined()) item = *absent;
  }
  return item;
}

Value folded(const Value& value, bool case_sensitive) {
  return value.text() && !case_sensitive ? Value::of(change_case(*value.text(), Case::lower)) : value;
}

Value sort_key(Interpreter& interpreter, const Value& item, const Value* attribute, bool case_sensitive) {
  return folded(attribute && !attribute->is_none() ? walk(interpreter, item, *attribute, nullptr) : item,
                case_sensitive);
}

Items sorted(Interpreter& interpreter, const Items& items, const std::vector<Value>& keys, bool reverse) {
  interpreter.spend(items.size());
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    interpreter.compare(keys[a], keys[b]);
    interpreter.spend(1);
    return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  Items out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value pair(const Value& key, const Value& value) { return Value::list({key, value}, SequenceKind::tuple); }

Value trim(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "trim", {"chars"});
  const Text text = to_text(value);
  if (!p[0] || p[0]->is_none()) return Value::of(strip(text, std::nullopt, Side::both));
  return Value::of(strip(text, to_string_argument(*p[0], "trim's chars").bytes(), Side::both));
}

Value replace_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "replace", {"old", "new", "count"}, 2);
  const int64_t count = p[2] && !p[2]->is_none() ? to_index(*p[2], "replace's count") : -1;
  return Value::of(replace(to_text(value), to_text(*p[0]).bytes(), to_text(*p[1]), count));
}

Value join(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "join", {"d", "attribute"});
  const Text separator = p[0] ? to_text(*p[0]) : Text();
  Text out;
  bool first = true;
  for (const Value& item : iterate(value)) {
    if (!first) out.append(separator);
    first = false;
    out.append(to_text(p[1] && !p[1]->is_none() ? walk(interpreter, item, *p[1], nullptr) : item));
  }
  return Value::of(std::move(out));
}

Value default_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "default", {"default_value", "boolean"});
  if (!value.is_undefined() && !(flag(p[1]) && !truth(value))) return value;
  return p[0] ? *p[0] : Value::of("");
}

Value tojson(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  std::optional<std::string> indent;
  if (p[1] && !p[1]->is_none()) {
    indent =
        p[1]->text()
            ? p[1]->text()->bytes()
            : std::string(static_cast<size_t>(std::clamp<int64_t>(to_index(*p[1], "tojson's indent"), 0, 64)), ' ');
  }
  std::string item_separator = indent ? "," : ", ", key_separator = ": ";
  if (p[2] && !p[2]->is_none()) {
    const auto separators = iterate(*p[2]);
    if (separators.size() != 2) raise("tojson's separators have to be two strings");
    item_separator = to_string_argument(separators[0], "tojson's separator").bytes();
    key_separator = to_string_argument(separators[1], "tojson's separator").bytes();
  }
  return Value::of(dump_json(value, flag(p[0]), indent, item_separator, key_separator, flag(p[3])));
}

Value items_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "items", {});
  Items out;
  if (!value.is_undefined()) {
    if (!value.as_dict()) raise("Can only get item pairs from a mapping.");
    for (const auto& [key, item] : value.as_dict()->entries) out.push_back(pair(key, item));
  }
  return Value::list(std::move(out), SequenceKind::iterator);
}

Value dictsort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!value.as_dict()) raise(fmt::format("'{}' has no attribute 'items'", object_type_name(value)));
  const std::string by = p[1] ? to_text(*p[1]).bytes() : "key";
  if (by != "key" && by != "value") raise("You can only sort by either \"key\" or \"value\"");
  Items out, keys;
  for (const auto& [key, item] : value.as_dict()->entries) {
    out.push_back(pair(key, item));
    keys.push_back(folded(by == "key" ? key : item, flag(p[0])));
  }
  return Value::list(sorted(interpreter, out, keys, flag(p[2])));
}

Value sort(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  const Items items = iterate(value);
  Items keys;
  for (const Value& item : items) {
    if (p[2] && p[2]->text() && p[2]->text()->bytes().find(',') != std::string::npos) {
      Items parts;
      for (const Text& part : split(*p[2]->text(), ",", -1, false)) {
        const Value attribute = Value::of(part);
        parts.push_back(sort_key(interpreter, item, &attribute, flag(p[1])));
      }
      keys.push_back(Value::list(std::move(parts)));
    } else {
      keys.push_back(sort_key(interpreter, item, p[2], flag(p[1])));
    }
  }
  return Value::list(sorted(interpreter, items, keys, flag(p[0])));
}

Value unique(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "unique", {"case_sensitive", "attribute"});
  Items out, seen;
  for (const Value& item : iterate(value)) {
    const Value key = sort_key(interpreter, item, p[1], flag(p[0]));
    const auto same = [&](const Value& other) {
      interpreter.spend(1);
      interpreter.compare(key, other);
      return equal(key, other);
    };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return Value::list(std::move(out), SequenceKind::iterator);
}

Value extreme(Interpreter& interpreter, const Value& value, const Arguments& arguments, bool most) {
  const Parameters p(arguments, most ? "max" : "min", {"case_sensitive", "attribute"});
  const Items items = iterate(value);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = sort_key(interpreter, items[0], p[1], flag(p[0]));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key(interpreter, items[i], p[1], flag(p[0]));
    interpreter.compare(best_key, key);
    if (most ? less(best_key, key) : less(key, best_key)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Value groupby(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const Items items = iterate(value);
  Items keys;
  for (const Value& item : items) keys.push_back(folded(walk(interpreter, item, *p[0], p[1]), flag(p[2])));
  std::vector<Items> groups;
  Value last;
  for (const Value& item : sorted(interpreter, items, keys, false)) {
    const Value key = folded(walk(interpreter, item, *p[0], p[1]), flag(p[2]));
    interpreter.compare(key, last);
    if (groups.empty() || !equal(key, last)) groups.emplace_back();
    groups.back().push_back(item);
    last = key;
  }
  Items out;
  for (Items& group : groups) {
    const Value key = walk(interpreter, group[0], *p[0], p[1]);
    out.push_back(pair(key, Value::list(std::move(group))));
    out.back().sequence()->grouped = true;
  }
  return Value::list(std::move(out));
}

Value map(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  Items out;
  if (!truth(value)) return Value::list({}, SequenceKind::iterator);
  const bool by_attribute = arguments.positional.empty() && !arguments.named.empty();
  if (by_attribute) {
    const Parameters p(arguments, "map", {"attribute", "default"}, 1);
    for (const Value& item : iterate(value)) out.push_back(walk(interpreter, item, *p[0], p[1]));
  } else {
    if (arguments.positional.empty()) raise("map requires a filter argument");
    const std::string name = to_string_argument(arguments.positional[0], "map's filter").bytes();
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    for (const Value& item : iterate(value)) out.push_back(interpreter.apply_filter(name, item, rest));
  }
  return Value::list(std::move(out), SequenceKind::iterator);
}

Value choose(Interpreter& interpreter, const Value& value, const Arguments& arguments, bool wanted, bool by_attribute) {
  Items out;
  if (!truth(value)) return Value::list({}, SequenceKind::iterator);
  Arguments rest = arguments;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) raise("Missing parameter for attribute name");
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = to_string_argument(rest.positional[0], "the test's name").bytes();
    rest.positional.erase(rest.positional.begin());
  }
  for (const Value& item : iterate(value)) {
    const Value tested = by_attribute ? walk(interpreter, item, attribute, nullptr) : item;
    const bool holds = test.empty() ? truth(tested) : interpreter.apply_test(test, tested, rest);
    if (holds == wanted) out.push_back(item);
  }
  return Value::list(std::move(out), SequenceKind::iterator);
}

Value indent(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "indent", {"width", "first", "blank"});
  Text margin(std::string(4, ' '));
  if (p[0]) {
    margin = p[0]->text()
                 ? *p[0]->text()
                 : Text(std::string(
                       static_cast<size_t>(std::clamp<int64_t>(to_index(*p[0], "indent's width"), 0, 4096)), ' '));
  }
  Text text = to_text(value);
  text.append("\n");
  Text out;
  bool is_first = true;
  for (const Text& line : split_lines(text, false)) {
    if (!is_first) out.append("\n");
    if (is_first ? flag(p[1]) : !line.empty() || flag(p[2])) out.append(margin);
    out.append(line);
    is_first = false;
  }
  return Value::of(std::move(out));
}

Value batch(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t count = to_index(*p[0], "batch's linecount");
  if (count < 1 || count > 100'000) raise("batch's linecount has to be from 1 to 100000");
  Items out, row;
  for (const Value& item : iterate(value)) {
    if (static_cast<int64_t>(row.size()) == count) out.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (p[1] && !p[1]->is_none()) row.resize(static_cast<size_t>(count), *p[1]);
    out.push_back(Value::list(std::move(row)));
  }
  return Value::list(std::move(out), SequenceKind::iterator);
}

Value slice(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "slice", {"slices", "fill_with"}, 1);
  const int64_t count = to_index(*p[0], "slice's number of slices");
  if (count == 0) raise("integer division or modulo by zero");
  if (count > 100'000) raise("more than 100000 slices are not supported");
  const Items items = iterate(value);
  Items out;
  size_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = static_cast<int64_t>(items.size()), extra = size % count;
    const size_t end = begin + static_cast<size_t>(size / count + (i < extra ? 1 : 0));
    Items part(items.begin() + static_cast<ptrdiff_t>(begin), items.begin() + static_cast<ptrdiff_t>(end));
    if (p[1] && !p[1]->is_none() && i >= extra) part.push_back(*p[1]);
    out.push_back(Value::list(std::move(part)));
    begin = end;
  }
  return Value::list(std::move(out), SequenceKind::iterator);
}

Value first(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "first", {});
  if (Sequence* sequence = value.sequence();
      sequence && sequence->kind == SequenceKind::iterator && !sequence->items.empty()) {
    const Value front = sequence->items.front();
    sequence->items.erase(sequence->items.begin());
    return front;
  }
  const Items items = iterate(value);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "last", {});
  if (value.sequence() && value.sequence()->kind == SequenceKind::iterator)
    raise("'generator' object is not reversible");
  const Items items = iterate(value);
  if (items.empty()) return Value::undefined("No last item, sequence was empty.");
  Value back = items.back();
  back.markup = back.markup || value.markup;
  return back;
}

Value reverse(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "reverse", {});
  if (const Text* text = value.text())
    return slice_value(Value::of(*text), Value::none(), Value::none(), Value::of(int64_t{-1}));
  Items items = iterate(value);
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items), SequenceKind::iterator);
}

Value sum(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "sum", {"attribute", "start"});
  Value total = p[1] ? *p[1] : Value::of(int64_t{0});
  if (total.text()) raise("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(value)) {
    total = interpreter.operate("+", total, p[0] && !p[0]->is_none() ? walk(interpreter, item, *p[0], nullptr) : item);
  }
  return total;
}

Value escape(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "escape", {});
  return escaped(value);
}

Value safe(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "safe", {});
  Value marked = Value::of(to_text(value));
  marked.markup = true;
  return marked;
}

Value format(Interpreter&, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    raise("can't handle positional and keyword arguments at the same time");
  }
  const Value text = value.text() ? value : Value::of(to_text(value));
  if (arguments.named.empty()) return format_percent(text, Value::list(arguments.positional, SequenceKind::tuple));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, item] : arguments.named) entries.emplace_back(Value::of(name), item);
  return format_percent(text, Value::dict(std::move(entries)));
}

template <Case to>
Value cased(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "case", {});
  return Value::of(change_case(to_text(value), to));
}

Value list(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "list", {});
  return Value::list(iterate(value));
}

Value string(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "string", {});
  return value.text() ? value : Value::of(to_text(value));
}

Value length_filter(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "length", {});
  return Value::of(length(value));
}

Value attr(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "attr", {"name"}, 1);
  const std::string& name = to_string_argument(*p[0], "attr's name").bytes();
  if (value.as_dict() && !has_method(value, name)) {
    return Value::undefined(fmt::format("'{}' has no attribute '{}'", object_type_name(value), name));
  }
  return interpreter.attribute(value, name);
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> table = {
      {"abs", filter_abs},
      {"attr", attr},
      {"batch", batch},
      {"capitalize", cased<Case::capitalize>},
      {"center", filter_center},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort},
      {"e", escape},
      {"escape", escape},
      {"first", first},
      {"float", filter_float},
      {"format", format},
      {"groupby", groupby},
      {"indent", indent},
      {"int", filter_int},
      {"items", items_filter},
      {"join", join},
      {"last", last},
      {"length", length_filter},
      {"list", list},
      {"lower", cased<Case::lower>},
      {"map", map},
      {"max", [](Interpreter& i, const Value& v, const Arguments& a) { return extreme(i, v, a, true); }},
      {"min", [](Interpreter& i, const Value& v, const Arguments& a) { return extreme(i, v, a, false); }},
      {"pprint", filter_pprint},
      {"reject", [](Interpreter& i, const Value& v, const Arguments& a) { return choose(i, v, a, false, false); }},
      {"rejectattr", [](Interpreter& i, const Value& v, const Arguments& a) { return choose(i, v, a, false, true); }},
      {"replace", replace_filter},
      {"reverse", reverse},
      {"round", filter_round},
      {"safe", safe},
      {"select", [](Interpreter& i, const Value& v, const Arguments& a) { return choose(i, v, a, true, false); }},
      {"selectattr", [](Interpreter& i, const Value& v, const Arguments& a) { return choose(i, v, a, true, true); }},
      {"slice", slice},
      {"sort", sort},
      {"string", string},
      {"sum", sum},
      {"title", cased<Case::jinja_title>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", filter_truncate},
      {"unique", unique},
      {"upper", cased<Case::upper>},
      {"urlencode", filter_urlencode},
      {"wordcount", filter_wordcount},
  };
  return table;
}

}  // namespace

bool is_filter(std::string_view name) { return filters().find(name) != filters().end(); }

Value run_filter(Interpreter& interpreter, const std::string& name, const Value& value, const Arguments& arguments) {
  Value result = filters().find(name)->second(interpreter, value, arguments);
  if (value.source >= 0 && result.source < 0) result.source = value.source;
  // Python's str methods keep the safe mark; other filters turn marked strings into plain ones.
  constexpr std::string_view kKeep[] = {"upper", "lower", "capitalize", "trim", "reverse", "center", "indent"};
  if (value.markup && std::find(std::begin(kKeep), std::end(kKeep), name) != std::end(kKeep)) result.markup = true;
  return result;
}

}  // namespace megatrain::jinja
