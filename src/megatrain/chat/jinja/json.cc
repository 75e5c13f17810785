#include "megatrain/chat/jinja/json.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {
namespace {

Value convert(const nlohmann::ordered_json& json, int32_t source, int depth) {
  if (depth > kMaxValueDepth) raise(fmt::format("a value nests deeper than {} levels", kMaxValueDepth));
  Value value;
  switch (json.type()) {
    case nlohmann::json::value_t::null: value = Value::none(); break;
    case nlohmann::json::value_t::boolean: value = Value::of(json.get<bool>()); break;
    case nlohmann::json::value_t::number_integer: value = Value::of(json.get<int64_t>()); break;
    case nlohmann::json::value_t::number_unsigned:
      value = Value::integer(fmt::format("{}", json.get<uint64_t>()));
      break;
    case nlohmann::json::value_t::binary: {
      const auto& digits = json.get_binary();
      value = Value::integer(std::string(digits.begin(), digits.end()));
      break;
    }
    case nlohmann::json::value_t::number_float: value = Value::of(json.get<double>()); break;
    case nlohmann::json::value_t::string: {
      const std::string& text = json.get_ref<const std::string&>();
      if (!is_valid_utf8(text)) raise("a string is not valid UTF-8");
      value = Value::of(Text(text, {.message = source}));
      break;
    }
    case nlohmann::json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(convert(item, source, depth + 1));
      value = Value::list(std::move(items));
      break;
    }
    case nlohmann::json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : json.items()) {
        if (!is_valid_utf8(key)) raise("a key is not valid UTF-8");
        entries.emplace_back(Value::of(Text(key, {.message = source})), convert(item, source, depth + 1));
      }
      value = Value::dict(std::move(entries));
      break;
    }
    default: raise("a value has no JSON type");
  }
  value.source = source;
  return value;
}

class Dumper {
 public:
  Dumper(bool ascii, const std::optional<std::string>& indent, std::string_view item_separator,
         std::string_view key_separator, bool sort_keys)
      : ascii_(ascii),
        indent_(indent),
        item_separator_(item_separator),
        key_separator_(key_separator),
        sort_keys_(sort_keys) {}

  void dump(const Value& value, int level, int32_t source) {
    if (value.source >= 0) source = value.source;
    const Origin origin{.message = source};
    if (const Text* text = value.text()) {
      dump_string(*text, source);
    } else if (const Dict* dict = value.as_dict()) {
      auto entries = dict->entries;
      if (sort_keys_) {
        std::stable_sort(entries.begin(), entries.end(),
                         [](const auto& a, const auto& b) { return less(a.first, b.first); });
      }
      open("{", entries.empty(), level, origin);
      bool first = true;
      for (const auto& [key, item] : entries) {
        separate(first, level, origin);
        dump_key(key, source);
        out.append(key_separator_, origin);
        dump(item, level + 1, source);
      }
      close("}", entries.empty(), level, origin);
    } else if (const Sequence* sequence = value.sequence(); sequence && sequence->kind <= SequenceKind::tuple) {
      open("[", sequence->items.empty(), level, origin);
      bool first = true;
      for (const Value& item : sequence->items) {
        separate(first, level, origin);
        dump(item, level + 1, source);
      }
      close("]", sequence->items.empty(), level, origin);
    } else {
      out.append(scalar(value), origin);
    }
  }

  Text out;

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* b = value.get<bool>()) return *b ? "true" : "false";
    if (const int64_t* i = value.get<int64_t>()) return fmt::format("{}", *i);
    if (const BigInteger* big = value.big()) return big->digits();
    if (const double* d = value.get<double>()) {
      if (std::isnan(*d)) return "NaN";
      if (std::isinf(*d)) return *d < 0 ? "-Infinity" : "Infinity";
      return show_float(*d);
    }
    raise(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
  }

  void new_line(int level, Origin origin) {
    if (!indent_) return;
    out.append("\n", origin);
    for (int i = 0; i < level; ++i) out.append(*indent_, origin);
  }
  void open(std::string_view bracket, bool empty, int level, Origin origin) {
    out.append(bracket, origin);
    if (!empty) new_line(level + 1, origin);
  }
  void separate(bool& first, int level, Origin origin) {
    if (!first) {
      out.append(item_separator_, origin);
      new_line(level + 1, origin);
    }
    first = false;
  }
  void close(std::string_view bracket, bool empty, int level, Origin origin) {
    if (!empty) new_line(level, origin);
    out.append(bracket, origin);
  }

  void dump_key(const Value& key, int32_t source) {
    if (const Text* text = key.text()) return dump_string(*text, source);
    if (key.sequence() || key.as_dict()) {
      raise(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
    dump_string(Text(scalar(key)), source);
  }

  void dump_string(const Text& text, int32_t source) {
    const std::string_view bytes = text.bytes();
    out.append("\"", {.message = text.empty() ? source : text.origin_at(0).message});
    for (size_t at = 0; at < bytes.size();) {
      const size_t begin = at;
      const char32_t c = next_code(bytes, at);
      const Origin origin = text.origin_at(begin);
      if (c == '"' || c == '\\') {
        out.append("\\", origin);
        out.append(text, begin, at);
      } else if (c == '\n') {
        out.append("\\n", origin);
      } else if (c == '\r') {
        out.append("\\r", origin);
      } else if (c == '\t') {
        out.append("\\t", origin);
      } else if (c == '\f') {
        out.append("\\f", origin);
      } else if (c == '\b') {
        out.append("\\b", origin);
      } else if (c < 0x20 || (ascii_ && c > 0x7E)) {
        const uint32_t code = c;
        out.append(c < 0x10000
                       ? fmt::format("\\u{:04x}", code)
                       : fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF)),
                   origin);
      } else {
        out.append(text, begin, at);
      }
    }
    out.append("\"", {.message = text.empty() ? source : text.origin_at(bytes.size()).message});
  }

  bool ascii_;
  const std::optional<std::string>& indent_;
  std::string_view item_separator_, key_separator_;
  bool sort_keys_;
};

}  // namespace

nlohmann::ordered_json json_integer(std::string_view digits) {
  return nlohmann::ordered_json::binary({digits.begin(), digits.end()});
}

Value from_json(const nlohmann::ordered_json& json, int32_t source) { return convert(json, source, 0); }

Text dump_json(const Value& value, bool ascii, const std::optional<std::string>& indent,
               std::string_view item_separator, std::string_view key_separator, bool sort_keys) {
  Dumper dumper(ascii, indent, item_separator, key_separator, sort_keys);
  dumper.dump(value, 0, -1);
  return std::move(dumper.out);
}

}  // namespace megatrain::jinja
