#include "megatrain/chat/jinja/text.h"

#include <string.h>

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/chat/jinja/unicode.h"

namespace megatrain::jinja {

void raise(const std::string& message) { throw Raise(message); }

void check_items(size_t count) {
  if (count > kMaxItems) raise(fmt::format("a list grew past {} items", kMaxItems));
}

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), origin});
}

Origin Text::origin_at(size_t byte) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), byte,
                                    [](size_t at, const Run& candidate) { return at < candidate.end; });
  if (run != runs_.end()) return run->origin;
  return runs_.empty() ? Origin{} : runs_.back().origin;
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (weight() + bytes.size() > kMaxTextBytes) raise(fmt::format("a text grew past {} bytes", kMaxTextBytes));
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::append(const Text& other, size_t begin, size_t end) {
  if (begin >= end) return;
  const std::string_view bytes = other.bytes_;
  auto run = std::upper_bound(other.runs_.begin(), other.runs_.end(), begin,
                              [](size_t at, const Run& candidate) { return at < candidate.end; });
  while (begin < end) {
    const size_t stop = std::min(run->end, end);
    append(bytes.substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

Text Text::sub(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

void Text::stamp_turn(int32_t turn) {
  for (Run& run : runs_) {
    if (run.origin.turn < 0) run.origin.turn = turn;
  }
  coalesce();
}

void Text::stamp_generation() {
  for (Run& run : runs_) run.origin.generation = true;
  coalesce();
}

void Text::coalesce() {
  size_t kept = 0;
  for (const Run& run : runs_) {
    if (kept > 0 && runs_[kept - 1].origin == run.origin) {
      runs_[kept - 1].end = run.end;
    } else {
      runs_[kept++] = run;
    }
  }
  runs_.resize(kept);
}

size_t count_chars(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), is_utf8_boundary));
}

size_t char_offset(std::string_view bytes, size_t index) {
  size_t at = 0;
  while (index > 0 && at < bytes.size()) {
    at += utf8_length(bytes[at]);
    --index;
  }
  return at;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* const found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

size_t find_last_text(std::string_view text, std::string_view part) {
  constexpr size_t kShort = 64;
  if (part.size() <= kShort) return text.rfind(part);
  const std::string backwards(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const size_t found = find_text(backwards, wanted);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

Text strip(const Text& text, std::optional<std::string_view> chars, Side side) {
  const std::string_view bytes = text.bytes();
  const auto drops = [&](size_t begin, size_t end) {
    if (chars) return chars->find(bytes.substr(begin, end - begin)) != std::string_view::npos;
    size_t at = begin;
    return is_space(next_code(bytes, at));
  };
  size_t begin = 0, end = bytes.size();
  if (side != Side::right) {
    while (begin < end) {
      const size_t next = begin + utf8_length(bytes[begin]);
      if (!drops(begin, next)) break;
      begin = next;
    }
  }
  if (side != Side::left) {
    while (begin < end) {
      size_t previous = end - 1;
      while (!is_utf8_boundary(bytes[previous])) --previous;
      if (!drops(previous, end)) break;
      end = previous;
    }
  }
  return text.sub(begin, end);
}

namespace {

std::vector<Text> split_at_spaces(const Text& text, int64_t limit, bool from_right) {
  struct Word {
    size_t begin, end;
  };
  std::vector<Word> words;
  const std::string_view bytes = text.bytes();
  bool inside = false;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const bool space = is_space(next_code(bytes, at));
    if (!space && !inside) words.push_back({begin, at});
    check_items(words.size());
    if (!space) words.back().end = at;
    inside = !space;
  }
  const size_t most = limit < 0 ? words.size() : static_cast<size_t>(limit);
  std::vector<Text> parts;
  if (words.size() <= most) {
    for (const Word& word : words) parts.push_back(text.sub(word.begin, word.end));
  } else if (from_right) {
    const size_t whole = words.size() - most;
    parts.push_back(text.sub(0, words[whole - 1].end));
    for (size_t i = whole; i < words.size(); ++i) parts.push_back(text.sub(words[i].begin, words[i].end));
  } else {
    for (size_t i = 0; i < most; ++i) parts.push_back(text.sub(words[i].begin, words[i].end));
    parts.push_back(text.sub(words[most].begin, bytes.size()));
  }
  return parts;
}

}  // namespace

std::vector<Text> split(const Text& text, std::optional<std::string_view> separator, int64_t limit, bool from_right) {
  if (!separator) return split_at_spaces(text, limit, from_right);
  const std::string_view bytes = text.bytes();
  const size_t most = limit < 0 ? bytes.size() + 1 : static_cast<size_t>(limit);
  std::vector<Text> parts;
  if (from_right) {
    size_t end = bytes.size();
    while (parts.size() < most) {
      if (end < separator->size()) break;
      const size_t found = find_last_text(bytes.substr(0, end), *separator);
      if (found == std::string_view::npos) break;
      parts.push_back(text.sub(found + separator->size(), end));
      check_items(parts.size());
      end = found;
    }
    parts.push_back(text.sub(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  size_t begin = 0;
  while (parts.size() < most) {
    const size_t found = find_text(bytes, *separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back(text.sub(begin, found));
    check_items(parts.size());
    begin = found + separator->size();
  }
  parts.push_back(text.sub(begin, bytes.size()));
  return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t here = at;
    const char32_t c = next_code(bytes, at);
    const bool ends = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.sub(begin, keep_ends ? at : here));
    check_items(lines.size());
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.sub(begin, bytes.size()));
  return lines;
}

Text replace(const Text& text, std::string_view from, const Text& to, int64_t limit) {
  const std::string_view bytes = text.bytes();
  Text out;
  size_t begin = 0;
  int64_t done = 0;
  if (from.empty()) {
    while (limit < 0 || done < limit) {
      out.append(to);
      ++done;
      if (begin >= bytes.size()) break;
      const size_t next = begin + utf8_length(bytes[begin]);
      out.append(text, begin, next);
      begin = next;
    }
  } else {
    while (limit < 0 || done < limit) {
      const size_t found = find_text(bytes, from, begin);
      if (found == std::string_view::npos) break;
      out.append(text, begin, found);
      out.append(to);
      begin = found + from.size();
      ++done;
    }
  }
  out.append(text, begin, bytes.size());
  return out;
}

Text repeat(const Text& text, int64_t times) {
  Text out;
  Text power = text;  // repeated 1, 2, 4, … times, so that a long text takes few appends
  for (int64_t rest = times; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0) out.append(power);
    if (rest > 1) power.append(Text(power));
  }
  return out;
}

std::vector<Text> characters(const Text& text) {
  std::vector<Text> out;
  const std::string_view bytes = text.bytes();
  check_items(count_chars(bytes));
  for (size_t at = 0; at < bytes.size();) {
    const size_t next = at + utf8_length(bytes[at]);
    out.push_back(text.sub(at, next));
    at = next;
  }
  return out;
}

namespace {

// A capital sigma is final if a cased letter comes before it and none after, ignoring case-ignorable characters.
bool is_final_sigma(std::string_view bytes, size_t begin, size_t end) {
  char32_t c = U' ';
  for (bool ignorable = true; ignorable;) {
    if (begin == 0) return false;
    do --begin;
    while (!is_utf8_boundary(bytes[begin]));
    size_t at = begin;
    c = next_code(bytes, at);
    ignorable = is_case_ignorable(c);
  }
  if (!is_cased(c)) return false;
  while (end < bytes.size()) {
    c = next_code(bytes, end);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

bool starts_jinja_word(char32_t c) { return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; }

}  // namespace

Text change_case(const Text& text, Case to) {
  const std::string_view bytes = text.bytes();
  Text out;
  bool in_word = false;
  for (size_t end = 0; end < bytes.size();) {
    const size_t begin = end;
    const char32_t c = next_code(bytes, end);
    Case how = to;
    if (to == Case::capitalize) how = begin == 0 ? Case::title : Case::lower;
    if (to == Case::title) how = in_word ? Case::lower : Case::title;
    if (to == Case::jinja_title) how = in_word ? Case::lower : Case::upper;
    if (to == Case::swap) how = is_upper(c) ? Case::lower : is_lower(c) ? Case::upper : Case::swap;
    in_word = to == Case::jinja_title ? !starts_jinja_word(c) : is_cased(c);
    std::string_view mapped;
    if (how == Case::upper) mapped = upper_of(c);
    if (how == Case::title) mapped = title_of(c);
    if (how == Case::lower) mapped = c == 0x3A3 && is_final_sigma(bytes, begin, end) ? "\xCF\x82" : lower_of(c);
    out.append(mapped.empty() ? bytes.substr(begin, end - begin) : mapped, text.origin_at(begin));
  }
  return out;
}

}  // namespace megatrain::jinja
