// Methods of str, dict and list.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "megatrain/base/among.h"
#include "megatrain/chat/jinja/cost.h"
#include "megatrain/chat/jinja/interpreter.h"
#include "megatrain/chat/jinja/unicode.h"

namespace megatrain::jinja {
namespace {

// All methods that Python has. Those not implemented here raise when called.
constexpr std::string_view kStringMethods[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"changed", "cycle"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};

Value texts(std::vector<Text> parts, SequenceKind kind = SequenceKind::list) {
  std::vector<Value> items;
  for (Text& part : parts) items.push_back(Value::of(std::move(part)));
  return Value::list(std::move(items), kind);
}

// The range of a search: Python's start and end, in bytes.
struct Window {
  size_t begin, end;
  bool valid;  // start is not beyond the end
};

Window window(const Text& text, const Value* start, const Value* end) {
  if (!start && !end) return {0, text.size(), true};
  const int64_t count = static_cast<int64_t>(count_chars(text.bytes()));
  const auto bound = [&](const Value* value, int64_t absent) {
    if (!value || value->is_none()) return absent;
    const int64_t index = to_index(*value, "a position");
    return index < 0 ? std::max<int64_t>(index < -count ? 0 : index + count, 0) : index;
  };
  const int64_t first = bound(start, 0), last = std::min(bound(end, count), count);
  if (first > last) return {0, 0, false};
  return {char_offset(text.bytes(), static_cast<size_t>(first)), char_offset(text.bytes(), static_cast<size_t>(last)),
          true};
}

Value strip_method(const Text& text, const std::string& name, const Arguments& arguments) {
  const Parameters p(arguments, name, {"chars"});
  const Side side = name == "lstrip" ? Side::left : name == "rstrip" ? Side::right : Side::both;
  if (!p[0] || p[0]->is_none()) return Value::of(strip(text, std::nullopt, side));
  return Value::of(strip(text, to_string_argument(*p[0], name + "'s argument").bytes(), side));
}

Value split_method(const Text& text, const std::string& name, const Arguments& arguments) {
  const Parameters p(arguments, name, {"sep", "maxsplit"});
  const int64_t limit = p[1] ? to_index(*p[1], "maxsplit") : -1;
  if (!p[0] || p[0]->is_none()) return texts(split(text, std::nullopt, limit, name == "rsplit"));
  const std::string& separator = to_string_argument(*p[0], name + "'s separator").bytes();
  if (separator.empty()) raise("empty separator");
  return texts(split(text, separator, limit, name == "rsplit"));
}

Value affix_method(const Text& text, const std::string& name, const Arguments& arguments) {
  const Parameters p(arguments, name, {"prefix", "start", "end"}, 1);
  const Window within = window(text, p[1], p[2]);
  const std::string_view bytes = std::string_view(text.bytes()).substr(within.begin, within.end - within.begin);
  const auto matches = [&](const Value& affix) {
    const std::string& part = to_string_argument(affix, name + "'s argument").bytes();
    return within.valid && (name == "startswith" ? bytes.starts_with(part) : bytes.ends_with(part));
  };
  const Sequence* sequence = p[0]->sequence();
  if (!sequence || sequence->kind != SequenceKind::tuple) return Value::of(matches(*p[0]));
  return Value::of(std::any_of(sequence->items.begin(), sequence->items.end(), matches));
}

Value find_method(const Text& text, const std::string& name, const Arguments& arguments) {
  const Parameters p(arguments, name, {"sub", "start", "end"}, 1);
  const std::string& part = to_string_argument(*p[0], name + "'s argument").bytes();
  const Window within = window(text, p[1], p[2]);
  const std::string_view bytes = std::string_view(text.bytes()).substr(within.begin, within.end - within.begin);
  if (name == "count") {
    if (!within.valid) return Value::of(int64_t{0});
    if (part.empty()) return Value::of(static_cast<int64_t>(count_chars(bytes)) + 1);
    int64_t found = 0;
    for (size_t at = find_text(bytes, part); at != std::string_view::npos;
         at = find_text(bytes, part, at + part.size())) {
      ++found;
    }
    return Value::of(found);
  }
  const size_t at = !within.valid    ? std::string_view::npos
                    : name[0] == 'r' ? find_last_text(bytes, part)
                                     : find_text(bytes, part);
  if (at == std::string_view::npos) {
    if (name == "index" || name == "rindex") raise("substring not found");
    return Value::of(int64_t{-1});
  }
  return Value::of(static_cast<int64_t>(count_chars(std::string_view(text.bytes()).substr(0, within.begin + at))));
}

Value partition_method(const Text& text, const std::string& name, const Arguments& arguments) {
  const Parameters p(arguments, name, {"sep"}, 1);
  const Text& separator = to_string_argument(*p[0], name + "'s separator");
  if (separator.empty()) raise("empty separator");
  const bool right = name == "rpartition";
  const size_t at =
      right ? find_last_text(text.bytes(), separator.bytes()) : find_text(text.bytes(), separator.bytes());
  if (at == std::string::npos) {
    return right ? texts({Text(), Text(), text}, SequenceKind::tuple)
                 : texts({text, Text(), Text()}, SequenceKind::tuple);
  }
  const size_t after = at + separator.size();
  return texts({text.sub(0, at), text.sub(at, after), text.sub(after, text.size())}, SequenceKind::tuple);
}

Value pad_method(const Text& text, const std::string& name, const Arguments& arguments) {
  const Parameters p(arguments, name, {"width", "fillchar"}, 1);
  const int64_t missing = to_index(*p[0], "a width") - static_cast<int64_t>(count_chars(text.bytes()));
  if (missing > 1'000'000) raise("a width above a million is not supported");
  const Text fill = p[1] ? to_string_argument(*p[1], "the fill character") : Text(name == "zfill" ? "0" : " ");
  if (count_chars(fill.bytes()) != 1) raise("The fill character must be exactly one character long");
  if (missing <= 0) return Value::of(text);
  int64_t left = name == "ljust" ? 0 : missing;
  if (name == "center")
    left = missing / 2 + (missing & (missing + static_cast<int64_t>(count_chars(text.bytes()))) & 1);
  size_t sign = 0;
  if (name == "zfill" && !text.empty() && (text.bytes()[0] == '+' || text.bytes()[0] == '-')) sign = 1;
  Text out = text.sub(0, sign);
  out.append(repeat(fill, left));
  out.append(text, sign, text.size());
  out.append(repeat(fill, missing - left));
  return Value::of(std::move(out));
}

Value class_method(const std::string& bytes, const std::string& name) {
  const auto every = [&](auto holds) {
    for (size_t at = 0; at < bytes.size();) {
      if (!holds(next_code(bytes, at))) return Value::of(false);
    }
    return Value::of(!bytes.empty());
  };
  if (name == "isspace") return every(is_space);
  if (name == "isalpha") return every(is_alpha);
  if (name == "isdigit") return every(is_digit);
  if (name == "isnumeric") return every(is_numeric);
  if (name == "isalnum") return every([](char32_t c) { return is_alpha(c) || is_numeric(c); });
  if (name == "isascii")
    return Value::of(std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) == 0; }));
  if (name == "islower") return Value::of(run_test("lower", Value::of(bytes), {}));
  return Value::of(run_test("upper", Value::of(bytes), {}));
}

Value join_method(const Text& separator, const Arguments& arguments) {
  const Parameters p(arguments, "join", {"iterable"}, 1);
  Text out;
  bool first = true;
  for (const Value& item : iterate(*p[0])) {
    if (!item.text()) raise(fmt::format("sequence item: expected str instance, {} found", type_name(item)));
    if (!first) out.append(separator);
    first = false;
    out.append(*item.text());
  }
  return Value::of(std::move(out));
}

Value string_method(Interpreter& interpreter, const Text& text, const std::string& name, const Arguments& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") return strip_method(text, name, arguments);
  if (name == "split" || name == "rsplit") return split_method(text, name, arguments);
  if (name == "startswith" || name == "endswith") return affix_method(text, name, arguments);
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count") {
    return find_method(text, name, arguments);
  }
  if (name == "partition" || name == "rpartition") return partition_method(text, name, arguments);
  if (name == "ljust" || name == "rjust" || name == "center" || name == "zfill")
    return pad_method(text, name, arguments);
  if (name == "join") return join_method(text, arguments);
  if (name == "format") return format_braces(interpreter, text, arguments);
  if (name == "replace") {
    const Parameters p(arguments, name, {"old", "new", "count"}, 2);
    return Value::of(replace(text, to_string_argument(*p[0], "replace's old").bytes(),
                             to_string_argument(*p[1], "replace's new"),
                             p[2] ? to_index(*p[2], "replace's count") : -1));
  }
  if (name == "splitlines") {
    const Parameters p(arguments, name, {"keepends"});
    return texts(split_lines(text, p[0] && truth(*p[0])));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const Parameters p(arguments, name, {"affix"}, 1);
    const std::string& affix = to_string_argument(*p[0], name + "'s argument").bytes();
    if (name == "removeprefix" && text.bytes().starts_with(affix))
      return Value::of(text.sub(affix.size(), text.size()));
    if (name == "removesuffix" && text.bytes().ends_with(affix))
      return Value::of(text.sub(0, text.size() - affix.size()));
    return Value::of(text);
  }
  for (const auto& [method, to] : {std::pair{"upper", Case::upper},
                                   {"lower", Case::lower},
                                   {"title", Case::title},
                                   {"capitalize", Case::capitalize},
                                   {"swapcase", Case::swap}}) {
    if (name != method) continue;
    const Parameters p(arguments, name, {});
    return Value::of(change_case(text, to));
  }
  for (const std::string_view method :
       {"isspace", "isalpha", "isdigit", "isnumeric", "isalnum", "isascii", "islower", "isupper"}) {
    if (name != method) continue;
    const Parameters p(arguments, name, {});
    return class_method(text.bytes(), name);
  }
  raise(fmt::format("the method '{}' of a string is not supported", name));
}

Value dict_method(const Value& self, const std::string& name, const Arguments& arguments) {
  const Dict& dict = *self.as_dict();
  if (name == "get") {
    const Parameters p(arguments, name, {"key", "default"}, 1);
    if (const Value* value = find(dict, *p[0])) return *value;
    return p[1] ? *p[1] : Value::none();
  }
  const Parameters p(arguments, name, {});
  if (name == "copy") return self;  // dicts are immutable
  if (name == "fromkeys") raise("the method 'fromkeys' of a dict is not supported");
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    if (name == "keys") items.push_back(key);
    if (name == "values") items.push_back(value);
    if (name == "items") items.push_back(Value::list({key, value}, SequenceKind::tuple));
  }
  return Value::list(std::move(items), name == "keys"     ? SequenceKind::keys
                                       : name == "values" ? SequenceKind::values
                                                          : SequenceKind::items);
}

Value list_method(const Value& self, const std::string& name, const Arguments& arguments) {
  const Sequence& sequence = *self.sequence();
  if (name == "copy") return Value::list(sequence.items, sequence.kind);
  const Parameters p(arguments, name, {"value"}, 1);
  const auto matches = [&](const Value& item) { return equal(item, *p[0]); };
  if (name == "count") return Value::of(int64_t{std::count_if(sequence.items.begin(), sequence.items.end(), matches)});
  const auto found = std::find_if(sequence.items.begin(), sequence.items.end(), matches);
  if (found == sequence.items.end()) raise("the value is not in the list");
  return Value::of(int64_t{found - sequence.items.begin()});
}

Value loop_method(Loop& loop, const std::string& name, const Arguments& arguments) {
  if (name == "cycle") {
    if (arguments.positional.empty()) raise("no items for cycling given");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  const bool same = loop.last_seen.size() == arguments.positional.size() && !loop.last_seen.empty() &&
                    std::equal(loop.last_seen.begin(), loop.last_seen.end(), arguments.positional.begin(), equal);
  loop.last_seen = arguments.positional;
  return Value::of(!same);
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  if (object.text()) return among(kStringMethods, name);
  if (object.as_dict()) return among(kDictMethods, name);
  if (object.get<std::shared_ptr<Loop>>()) return among(kLoopMethods, name);
  const Sequence* sequence = object.sequence();
  if (!sequence) return false;
  return (sequence->kind == SequenceKind::list && among(kListMethods, name)) ||
         (sequence->kind == SequenceKind::tuple && among(kTupleMethods, name));
}

bool changes_object(const Value& object, std::string_view name) {
  if (object.as_dict()) return among(kDictChanges, name);
  return object.sequence() && object.sequence()->kind == SequenceKind::list && among(kListChanges, name);
}

Value run_method(Interpreter& interpreter, const Callable& method, const Arguments& arguments) {
  if (method.self.markup) raise("a method of a string marked safe or escaped is not supported");
  interpreter.spend(method_steps(method, arguments));
  Value result;
  if (const Text* text = method.self.text()) {
    result = string_method(interpreter, *text, method.name, arguments);
  } else if (method.self.as_dict()) {
    result = dict_method(method.self, method.name, arguments);
  } else if (const auto* loop = method.self.get<std::shared_ptr<Loop>>()) {
    result = loop_method(**loop, method.name, arguments);
  } else {
    result = list_method(method.self, method.name, arguments);
  }
  return result;
}

}  // namespace megatrain::jinja
