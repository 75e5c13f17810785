#include "megatrain/chat/jinja/cost.h"

#include <algorithm>

#include "megatrain/base/among.h"

namespace megatrain::jinja {
namespace {

// Filters and methods of text, by how they read it. All others make a value of each character.
constexpr std::string_view kCopied[] = {"string",     "safe",     "format",       "length",
                                        "startswith", "endswith", "removeprefix", "removesuffix"};
constexpr std::string_view kSearched[] = {"trim",   "strip", "lstrip",    "rstrip",     "replace", "truncate",
                                          "find",   "rfind", "index",     "rindex",     "count",   "join",
                                          "center", "ljust", "partition", "rpartition", "rjust",   "zfill"};
constexpr std::string_view kDecoded[] = {
    "upper",   "lower",   "title",     "capitalize", "swapcase", "tojson",     "pprint",  "urlencode", "wordcount",
    "e",       "escape",  "int",       "float",      "round",    "abs",        "isspace", "isalpha",   "isdigit",
    "isascii", "islower", "isnumeric", "isalnum",    "isupper",  "splitlines", "split",   "rsplit",    "indent"};
constexpr std::string_view kUnread[] = {"default", "d", "attr"};

size_t text_steps(std::string_view name, size_t bytes) {
  if (among(kUnread, name)) return 1;
  if (among(kCopied, name)) return copy_steps(bytes);
  if (among(kSearched, name)) return search_steps(bytes);
  if (among(kDecoded, name)) return character_steps(bytes);
  return take_apart_steps(bytes);
}

size_t argument_bytes(const Arguments& arguments) {
  size_t bytes = 0;
  for (const Value& argument : arguments.positional) bytes += weight(argument);
  for (const auto& [name, argument] : arguments.named) bytes += weight(argument);
  return bytes;
}

// Each character is looked up among those to strip.
size_t strip_steps(size_t bytes, const Arguments& arguments) {
  return search_steps(bytes) * (1 + copy_steps(argument_bytes(arguments)));
}

}  // namespace

size_t shallow_weight(const Value& value) {
  if (value.text()) return weight(value);
  if (const Sequence* sequence = value.sequence()) return sequence->items.size() * sizeof(Value);
  if (const Dict* dict = value.as_dict()) return dict->entries.size() * 2 * sizeof(Value);
  if (const BigInteger* big = value.big()) return big->limbs() * big->limbs();  // cost of a multiplication
  return 0;
}

size_t iterate_steps(const Value& value) {
  return value.text() ? take_apart_steps(weight(value)) : copy_steps(shallow_weight(value));
}

size_t contains_steps(const Value& container, const Value& item) {
  const size_t bytes = weight(container);
  return (container.text() ? search_steps(bytes) : copy_steps(bytes)) + copy_steps(shallow_weight(item));
}

// A key is compared with all keys of the same length.
size_t find_steps(const Dict& dict, size_t key_bytes) {
  constexpr size_t kShort = 64;
  const size_t compared = key_bytes > kShort ? std::min(dict.weight, dict.entries.size() * key_bytes) : key_bytes;
  return copy_steps(dict.entries.size() * 8 + compared);
}

size_t slice_steps(const Value& object, bool with_step) {
  const size_t bytes = shallow_weight(object);
  return object.text() && with_step ? take_apart_steps(bytes) : copy_steps(bytes);
}

size_t filter_steps(std::string_view name, const Value& value, const Arguments& arguments) {
  size_t given = 0;
  for (const Value& argument : arguments.positional) given += copy_steps(shallow_weight(argument));
  if (value.text()) {
    if (name == "trim") return strip_steps(weight(value), arguments);
    if (name == "join") return given + take_apart_steps(weight(value));
    return given + text_steps(name == "count" ? "length" : name, weight(value));
  }
  constexpr std::string_view kOutside[] = {
      // These read the list itself, not its items.
      "attr", "batch", "count",  "d",          "default", "dictsort", "first",      "items", "last", "length",
      "list", "map",   "reject", "rejectattr", "reverse", "select",   "selectattr", "slice", "sum"};
  if (!among(kOutside, name)) return given + weight(value);
  if (const Dict* dict = value.as_dict()) return given + dict->entries.size();
  if (const Sequence* sequence = value.sequence())
    return given + (name == "length" || name == "count" ? 1 : sequence->items.size());
  return given + 1;
}

size_t method_steps(const Callable& method, const Arguments& arguments) {
  const std::string& name = method.name;
  const Value& self = method.self;
  const size_t given = copy_steps(argument_bytes(arguments));
  if (const Dict* dict = self.as_dict()) {
    if (name == "get" && !arguments.positional.empty()) return find_steps(*dict, weight(arguments.positional[0]));
    return dict->entries.size() + given;
  }
  if (self.get<std::shared_ptr<Loop>>()) return given;
  const size_t bytes = weight(self);
  if (!self.text()) return copy_steps(bytes) + 1;
  if (name.ends_with("strip")) return strip_steps(bytes, arguments);
  if (name == "join") {
    const bool of_text = !arguments.positional.empty() && arguments.positional[0].text();
    return copy_steps(bytes) + (of_text ? iterate_steps(arguments.positional[0]) : given);
  }
  const bool within =
      arguments.positional.size() > 1 || !arguments.named.empty();  // a window, whose ends are counted in characters
  if (within && (name == "startswith" || name == "endswith")) return search_steps(bytes) + given;
  return text_steps(name, bytes) + given;
}

}  // namespace megatrain::jinja
