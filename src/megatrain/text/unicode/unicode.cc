#include "megatrain/text/unicode/unicode.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "megatrain/text/unicode/tables.h"

namespace megatrain {
namespace {

// The length of the valid sequence at `p`, or 0; then `bad` is the length of its maximal invalid part.
int valid_sequence(const unsigned char* p, const unsigned char* end, int& bad) {
  const unsigned char lead = p[0];
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const int length = utf8_length(lead);
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (int i = 1; i < length; i++) {
    if (p + i >= end || p[i] < low || p[i] > high) return 0;
    bad = i + 1;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

// The letters of a property's name that count.
std::string plain(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c != '_' && c != '-' && c != ' ') {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

struct CategoryName {
  const char* letters;  // "lu"
  const char* words;
};

// In the order of the numbers in kCategoryRuns.
constexpr CategoryName kCategories[] = {
    {"lu", "uppercaseletter"},    {"ll", "lowercaseletter"},  {"lt", "titlecaseletter"},
    {"lm", "modifierletter"},     {"lo", "otherletter"},      {"mn", "nonspacingmark"},
    {"mc", "spacingmark"},        {"me", "enclosingmark"},    {"nd", "decimalnumber"},
    {"nl", "letternumber"},       {"no", "othernumber"},      {"pc", "connectorpunctuation"},
    {"pd", "dashpunctuation"},    {"ps", "openpunctuation"},  {"pe", "closepunctuation"},
    {"pi", "initialpunctuation"}, {"pf", "finalpunctuation"}, {"po", "otherpunctuation"},
    {"sm", "mathsymbol"},         {"sc", "currencysymbol"},   {"sk", "modifiersymbol"},
    {"so", "othersymbol"},        {"zs", "spaceseparator"},   {"zl", "lineseparator"},
    {"zp", "paragraphseparator"}, {"cc", "control"},          {"cf", "format"},
    {"co", "privateuse"},
};

constexpr CategoryName kGroups[] = {{"l", "letter"},      {"m", "mark"},   {"n", "number"},
                                    {"p", "punctuation"}, {"s", "symbol"}, {"z", "separator"}};

CodePointSet categories_where(bool (*chosen)(const std::string&, size_t), const std::string& name) {
  std::vector<CodeRange> ranges;
  for (int i = 0; i < tokenizer_unicode::kCategoryRuns_size; i++) {
    const uint32_t run = tokenizer_unicode::kCategoryRuns[i];
    const uint32_t end = i + 1 < tokenizer_unicode::kCategoryRuns_size ? tokenizer_unicode::kCategoryRuns[i + 1] >> 5
                                                                       : kLastCodePoint + 1;
    const size_t category = run & 31;
    if (category < std::size(kCategories) && chosen(name, category)) ranges.push_back({run >> 5, end - 1});
  }
  return CodePointSet(std::move(ranges));
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = begin + text.size();
  const auto* p = begin;
  while (p < end) {
    uint64_t eight = 0;
    if (end - p >= 8) {
      std::memcpy(&eight, p, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        p += 8;
        continue;
      }
    }
    int bad = 0;
    const int length = valid_sequence(p, end, bad);
    if (length == 0) return static_cast<size_t>(p - begin);
    p += length;
  }
  return std::string_view::npos;
}

std::string utf8_lossy(std::string_view bytes) {
  if (find_invalid_utf8(bytes) == std::string_view::npos) return std::string(bytes);
  std::string result;
  result.reserve(bytes.size() + 8);
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto* const end = p + bytes.size();
  while (p < end) {
    int bad = 0;
    const int length = valid_sequence(p, end, bad);
    if (length > 0) {
      result.append(reinterpret_cast<const char*>(p), static_cast<size_t>(length));
      p += length;
    } else {
      result += "\xEF\xBF\xBD";
      p += bad;
    }
  }
  return result;
}

void append_utf8(std::string& text, uint32_t code) {
  const auto push = [&](uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | code >> 12);
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | code >> 18);
    push(0x80 | (code >> 12 & 0x3F));
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

CodePointSet::CodePointSet(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  for (const CodeRange& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::of(const uint32_t* pairs, int size) {
  std::vector<CodeRange> ranges;
  for (int i = 0; i < size; i += 2) ranges.push_back({pairs[i], pairs[i + 1]});
  return CodePointSet(std::move(ranges));
}

bool CodePointSet::contains(uint32_t code) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code,
                                      [](uint32_t value, const CodeRange& range) { return value < range.first; });
  return after != ranges_.begin() && code <= std::prev(after)->last;
}

CodePointSet CodePointSet::complement() const {
  CodePointSet result;
  uint32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) result.ranges_.push_back({next, kLastCodePoint});
  return result;
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  std::vector<CodeRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(ranges));
}

CodePointSet CodePointSet::intersected(const CodePointSet& other) const {
  return complement().united(other.complement()).complement();
}

CodePointMap<uint8_t> membership(const CodePointSet& set) {
  std::vector<CodePointMap<uint8_t>::Entry> entries;
  for (const CodeRange& range : set.ranges()) entries.push_back({range, 1});
  return {0, entries};
}

bool find_property(std::string_view name, CodePointSet& set) {
  const std::string wanted = plain(name);
  if (wanted == "any") {
    set = CodePointSet::all();
    return true;
  }
  for (const CategoryName& group : kGroups) {
    if (wanted == group.letters || wanted == group.words) {
      set = categories_where([](const std::string& letter, size_t i) { return kCategories[i].letters[0] == letter[0]; },
                             group.letters);
      return true;
    }
  }
  for (const CategoryName& category : kCategories) {
    if (wanted == category.letters || wanted == category.words) {
      set = categories_where([](const std::string& letters, size_t i) { return letters == kCategories[i].letters; },
                             category.letters);
      return true;
    }
  }
  for (int script = 0; script < tokenizer_unicode::kScriptNames_size; script++) {
    if (wanted != plain(tokenizer_unicode::kScriptNames[script])) continue;
    std::vector<CodeRange> ranges;
    for (int i = 0; i < tokenizer_unicode::kScriptRanges_size; i += 3) {
      const uint32_t* const range = tokenizer_unicode::kScriptRanges + i;
      if (range[2] == static_cast<uint32_t>(script)) ranges.push_back({range[0], range[1]});
    }
    set = CodePointSet(std::move(ranges));
    return true;
  }
  return false;
}

}  // namespace megatrain
