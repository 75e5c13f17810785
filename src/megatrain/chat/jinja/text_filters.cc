#include "megatrain/chat/jinja/text_filters.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/chat/jinja/unicode.h"

namespace megatrain::jinja {
namespace {

// Percent-encodes like urllib's quote; in a query, a space becomes a plus.
Text quoted(const Value& value, bool in_query) {
  const Text text = to_text(value);
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text.bytes()[i]);
    const bool safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                      c == '.' || c == '-' || c == '~' || (c == '/' && !in_query);
    if (safe) {
      out.append(text, i, i + 1);
    } else {
      out.append(c == ' ' && in_query ? "+" : fmt::format("%{:02X}", c), text.origin_at(i));
    }
  }
  return out;
}

// Python's pprint.pformat: 80 columns, indentation of one, sorted keys.
class PrettyPrinter {
 public:
  void write(const Value& value, size_t indent, size_t allowance, int level) {
    const Text plain = shown(value);
    const size_t room = kWidth - std::min(kWidth, indent + allowance);
    const Sequence* const sequence = value.sequence();
    const bool listed = sequence && sequence->kind <= SequenceKind::tuple;
    const bool fits = count_chars(plain.bytes()) <= room && indent + allowance <= kWidth;
    if (fits || !(value.as_dict() || listed || (value.text() && !value.markup))) {
      out.append(plain);
    } else if (value.as_dict()) {
      write_dict(value, indent, allowance + 1, level + 1);
    } else if (listed) {
      const bool tuple = sequence->kind == SequenceKind::tuple;
      const std::string close = !tuple ? "]" : sequence->items.size() == 1 ? ",)" : ")";
      const Origin origin{.message = value.source};
      out.append(tuple ? "(" : "[", origin);
      for (size_t i = 0; i < sequence->items.size(); ++i) {
        if (i > 0) new_line(",", indent + 1, origin);
        const bool last = i + 1 == sequence->items.size();
        write(sequence->items[i], indent + 1, last ? allowance + close.size() : 1, level + 1);
      }
      out.append(close, origin);
    } else {
      write_text(*value.text(), indent, allowance, level + 1);
    }
  }

  Text out;

 private:
  static constexpr size_t kWidth = 80;

  using Entries = std::vector<std::pair<Value, Value>>;

  static Entries in_order(const Dict& dict) {
    Entries entries = dict.entries;
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      try {
        return less(a.first, b.first);
      } catch (const Raise&) {
        return type_name(a.first) < type_name(b.first);
      }
    });
    return entries;
  }

  // repr() with sorted dict keys.
  static Text shown(const Value& value) {
    const Origin origin{.message = value.source};
    const Sequence* const sequence = value.sequence();
    Text out;
    if (const Dict* dict = value.as_dict()) {
      out.append("{", origin);
      bool first = true;
      for (const auto& [key, item] : in_order(*dict)) {
        if (!std::exchange(first, false)) out.append(", ", origin);
        out.append(shown(key));
        out.append(": ", origin);
        out.append(shown(item));
      }
      out.append("}", origin);
    } else if (sequence && sequence->kind <= SequenceKind::tuple) {
      const bool tuple = sequence->kind == SequenceKind::tuple;
      out.append(tuple ? "(" : "[", origin);
      for (size_t i = 0; i < sequence->items.size(); ++i) {
        if (i > 0) out.append(", ", origin);
        out.append(shown(sequence->items[i]));
      }
      out.append(!tuple ? "]" : sequence->items.size() == 1 ? ",)" : ")", origin);
    } else {
      out = to_repr(value);
    }
    return out;
  }

  void new_line(std::string_view before, size_t indent, Origin origin) {
    out.append(std::string(before) + "\n" + std::string(indent, ' '), origin);
  }

  void write_dict(const Value& value, size_t indent, size_t allowance, int level) {
    const Origin origin{.message = value.source};
    const Entries entries = in_order(*value.as_dict());
    out.append("{", origin);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) new_line(",", indent + 1, origin);
      const Text key = shown(entries[i].first);
      out.append(key);
      out.append(": ", origin);
      const bool last = i + 1 == entries.size();
      write(entries[i].second, indent + 1 + count_chars(key.bytes()) + 2, last ? allowance : 1, level);
    }
    out.append("}", origin);
  }

  // Writes a long text as literals of its lines and words, one below the other.
  void write_text(const Text& text, size_t indent, size_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const auto length = [](const Text& part) { return static_cast<int64_t>(count_chars(part.bytes())); };
    const int64_t width = static_cast<int64_t>(kWidth) - static_cast<int64_t>(indent);
    const std::vector<Text> lines = split_lines(text, true);
    std::vector<Text> chunks;
    Text repr;
    for (size_t i = 0; i < lines.size(); ++i) {
      const int64_t last_line = i + 1 == lines.size() ? static_cast<int64_t>(allowance) : 0;
      repr = to_repr(Value::of(lines[i]));
      if (length(repr) <= width - last_line) {
        chunks.push_back(repr);
        continue;
      }
      const std::vector<Text> words = words_of(lines[i]);
      Text current;
      for (size_t j = 0; j < words.size(); ++j) {
        Text candidate = current;
        candidate.append(words[j]);
        const int64_t last_word = j + 1 == words.size() ? last_line : 0;
        if (length(to_repr(Value::of(candidate))) > width - last_word) {
          if (!current.empty()) chunks.push_back(to_repr(Value::of(current)));
          current = words[j];
        } else {
          current = std::move(candidate);
        }
      }
      if (!current.empty()) chunks.push_back(to_repr(Value::of(current)));
    }
    if (chunks.size() == 1) return out.append(repr);
    const Origin origin = text.origin_at(0);
    if (level == 1) out.append("(", origin);
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) new_line("", indent, origin);
      out.append(chunks[i]);
    }
    if (level == 1) out.append(")", origin);
  }

  // Each word with the white space after it.
  static std::vector<Text> words_of(const Text& text) {
    const std::string_view bytes = text.bytes();
    std::vector<Text> words;
    size_t begin = 0;
    bool spaces = false;
    for (size_t at = 0; at < bytes.size();) {
      const size_t here = at;
      const bool space = is_space(next_code(bytes, at));
      if (spaces && !space) {
        words.push_back(text.sub(begin, here));
        begin = here;
      }
      spaces = space;
    }
    words.push_back(text.sub(begin, bytes.size()));
    return words;
  }
};

}  // namespace

Value filter_truncate(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const int64_t most = p[0] ? to_index(*p[0], "truncate's length") : 255;
  const Value end = p[2] ? *p[2] : Value::of("...");
  to_string_argument(end, "truncate's end");
  const int64_t leeway = p[3] && !p[3]->is_none() ? to_index(*p[3], "truncate's leeway") : 5;
  if (most < length(end)) raise(fmt::format("expected length >= {}, got {}", length(end), most));
  if (leeway < 0) raise(fmt::format("expected leeway >= 0, got {}", leeway));
  if (length(value) <= most + leeway) return value;
  if (!value.text()) raise(fmt::format("truncating a '{}' is not supported", type_name(value)));
  Text kept = value.text()->sub(0, char_offset(value.text()->bytes(), static_cast<size_t>(most - length(end))));
  if (!(p[1] && truth(*p[1]))) kept = split(kept, " ", 1, true).front();
  Value cut = Value::of(std::move(kept));
  cut.markup = value.markup;
  return interpreter.operate("+", cut, end);
}

Value filter_wordcount(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "wordcount", {});
  const Text text = to_text(value);
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code(text.bytes(), at);
    const bool word = is_alpha(c) || is_numeric(c) || c == '_';
    if (word && !inside) ++count;
    inside = word;
  }
  return Value::of(count);
}

Value filter_center(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "center", {"width"});
  const int64_t width = p[0] ? to_index(*p[0], "center's width") : 80;
  const Text text = to_text(value);
  const int64_t missing = width - static_cast<int64_t>(count_chars(text.bytes()));
  if (missing > 1'000'000) raise("a width above a million is not supported");
  if (missing <= 0) return Value::of(text);
  const int64_t left = missing / 2 + (missing & width & 1);
  Text out(std::string(static_cast<size_t>(left), ' '));
  out.append(text);
  out.append(std::string(static_cast<size_t>(missing - left), ' '));
  return Value::of(std::move(out));
}

Value filter_urlencode(Interpreter&, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "urlencode", {});
  if (!value.as_dict() && !value.sequence()) return Value::of(quoted(value, false));
  Text out;
  const auto add = [&](const Value& key, const Value& item) {
    if (!out.empty()) out.append("&");
    out.append(quoted(key, true));
    out.append("=");
    out.append(quoted(item, true));
  };
  if (const Dict* dict = value.as_dict()) {
    for (const auto& [key, item] : dict->entries) add(key, item);
    return Value::of(std::move(out));
  }
  for (const Value& item : iterate(value)) {
    const auto parts = iterate(item);
    if (parts.size() != 2) raise("urlencode takes a string, a dict or a list of pairs");
    add(parts[0], parts[1]);
  }
  return Value::of(std::move(out));
}

Value filter_pprint(Interpreter& interpreter, const Value& value, const Arguments& arguments) {
  const Parameters p(arguments, "pprint", {});
  size_t levels = 1;  // each level writes everything below it
  if (const Sequence* sequence = value.sequence()) levels += static_cast<size_t>(sequence->depth);
  if (const Dict* dict = value.as_dict()) levels += static_cast<size_t>(dict->depth);
  interpreter.spend(levels * std::min(weight(value), size_t{1} << 40));
  PrettyPrinter printer;
  printer.write(value, 0, 0, 0);
  return Value::of(std::move(printer.out));
}

}  // namespace megatrain::jinja
