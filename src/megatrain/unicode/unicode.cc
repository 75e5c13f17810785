#include "megatrain/unicode/unicode.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "megatrain/unicode/tables.h"

namespace megatrain {
namespace {

// A property's name without the characters that make no difference.
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

// In the order of the category numbers in kCategoryRuns.
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
