// Translates Oniguruma's (Ruby's) syntax atom by atom. An atom that matches one code point becomes a set; the rest is
// kept in PCRE2's syntax.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/tokenizer/regex.h"
#include "megatrain/unicode/tables.h"

namespace megatrain {
namespace {

constexpr int kMaxNesting = 64;
constexpr size_t kNothing = static_cast<size_t>(-1);

CodePointSet single(uint32_t code) { return CodePointSet({{code, code}}); }

CodePointSet shorthand(char letter) {
  using namespace tokenizer_unicode;
  switch (letter) {
    case 's': return CodePointSet::of(kOnigSpace, kOnigSpace_size);
    case 'd': return CodePointSet::of(kOnigDigit, kOnigDigit_size);
    case 'w': return CodePointSet::of(kOnigWord, kOnigWord_size);
    default: return CodePointSet({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});  // h
  }
}

// A piece of the translated pattern: text kept as it is, or the index of a set.
struct Part {
  std::string text;
  int set = -1;
};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {}

  ClassPattern translate() {
    if (find_invalid_utf8(pattern_) != std::string_view::npos) refuse("bytes that are not UTF-8");
    read_group(0);
    if (at_ < pattern_.size()) refuse("a ) without its (");
    return emit();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail_input(
        fmt::format("{}: the regular expression has {}, which megatrain does not support (before byte {} of {}).",
                    where_, what, at_, quoted()));
  }
  std::string quoted() const { return "\"" + std::string(pattern_.substr(0, 200)) + "\""; }

  bool more() const { return at_ < pattern_.size(); }
  bool looking_at(std::string_view text) const { return pattern_.substr(at_, text.size()) == text; }
  bool take(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }
  uint32_t take_code() {
    const char* const begin = pattern_.data() + at_;
    const char* after = begin;
    const uint32_t code = next_code(after);
    at_ += static_cast<size_t>(after - begin);
    return code;
  }

  void keep(std::string text) { parts_.push_back({std::move(text), -1}); }
  void keep_set(CodePointSet set) {
    parts_.push_back({"", static_cast<int>(sets_.size())});
    sets_.push_back(std::move(set));
  }
  // Wraps everything from `begin` on in a group that a quantifier can follow.
  void wrap(size_t begin) {
    parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(begin), Part{"(?:", -1});
    keep(")");
  }

  // Reads up to the ) that ends the group, or the end of the pattern.
  void read_group(int depth) {
    if (depth > kMaxNesting) refuse("more than 64 nested groups");
    const bool caseless = caseless_;
    size_t atom = kNothing;  // where the last repeatable atom begins
    int closing = 0;         // groups opened by (?i), which extend to the end of this one
    while (more() && !looking_at(")")) {
      if (take("|")) {
        keep("|");
        atom = kNothing;
        last_caseless_ = 0;
      } else if (take("(")) {
        atom = parts_.size();
        last_caseless_ = 0;
        read_open(depth, closing, atom);
        last_caseless_ = 0;
      } else if (read_quantifier(atom)) {
        last_caseless_ = 0;
      } else {
        atom = parts_.size();
        read_atom();
      }
    }
    for (int i = 0; i < closing; i++) keep(")");
    caseless_ = caseless;
  }

  // After the "(".
  void read_open(int depth, int& closing, size_t& atom) {
    const bool caseless = caseless_;
    bool repeatable = true;
    if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
      const size_t length = pattern_[at_ - 2] == '<' ? 3 : 2;
      keep("(" + std::string(pattern_.substr(at_ - length, length)));
      repeatable = false;
    } else if (take("?>")) {
      keep("(?>");
    } else if (take("?")) {
      bool value = true;
      for (; more() && !looking_at(":") && !looking_at(")"); at_++) {
        if (looking_at("-")) {
          value = false;
        } else if (looking_at("i")) {
          caseless_ = value;
        } else {
          refuse("a group (?" + std::string(pattern_.substr(at_, 1)));
        }
      }
      if (take(")")) {  // until the end of the enclosing group, alternatives included
        keep("(?:");
        closing++;
        atom = kNothing;
        return;
      }
      if (!take(":")) refuse("a group without an end");
      keep("(?:");
    } else {
      keep("(?:");
    }
    read_group(depth + 1);
    if (!take(")")) refuse("a ( without its )");
    keep(")");
    caseless_ = caseless;
    if (!repeatable) atom = kNothing;
  }

  // {n}, {n,}, {,m}, {n,m}. Oniguruma treats anything else as a literal brace.
  bool read_interval(std::string& text, bool& exact) {
    size_t at = at_ + 1;
    std::string numbers[2];
    int which = 0;
    for (; at < pattern_.size() && pattern_[at] != '}'; at++) {
      if (pattern_[at] == ',' && which == 0) {
        which = 1;
      } else if (std::isdigit(static_cast<unsigned char>(pattern_[at])) != 0) {
        numbers[which] += pattern_[at];
      } else {
        return false;
      }
    }
    if (at >= pattern_.size() || (numbers[0].empty() && numbers[1].empty())) return false;
    if (numbers[0].size() > 5 || numbers[1].size() > 5) refuse("a repetition count above 99999");
    exact = which == 0;
    text = exact ? "{" + numbers[0] + "}" : "{" + (numbers[0].empty() ? "0" : numbers[0]) + "," + numbers[1] + "}";
    at_ = at + 1;
    return true;
  }

  bool read_quantifier(size_t& atom) {
    std::string text;
    bool interval = false, exact = false;
    if (looking_at("*") || looking_at("+") || looking_at("?")) {
      text = pattern_[at_++];
    } else if (looking_at("{") && read_interval(text, exact)) {
      interval = true;
    } else {
      return false;
    }
    if (atom == kNothing) refuse("a repetition of nothing");
    if (interval) {
      // {n,m}+ repeats the interval and {n}? makes it optional; only {n,m}? is lazy.
      keep(text);
      if (!exact && take("?")) {
        keep("?");
      }
    } else {
      if (take("?")) {
        text += "?";
      } else if (take("+")) {
        text += "+";
      }
      keep(text);
    }
    if (more() && std::string_view("*+?{").find(pattern_[at_]) != std::string_view::npos) wrap(atom);
    return true;
  }

  void read_atom() {
    if (looking_at("[")) {
      at_++;
      last_caseless_ = 0;
      keep_set(read_class(0));
    } else if (take(".")) {
      keep_set(single('\n').complement());
    } else if (take("^")) {
      keep("(?:\\A|(?<=");
      keep_set(single('\n'));
      keep(")(?!\\z))");
    } else if (take("$")) {
      keep("(?:(?=");
      keep_set(single('\n'));
      keep(")|\\z(?<!");
      keep_set(single('\n'));
      keep("))");
    } else if (looking_at("\\")) {
      at_++;
      read_escape();
    } else {
      keep_literal(take_code());
    }
  }

  void keep_literal(uint32_t code) {
    if (!caseless_) {
      keep_set(single(code));
      return;
    }
    // Two letters together may be the lower case of one: ß, ﬀ, ﬁ, ﬂ, ﬆ.
    const uint32_t lower = code < 0x80 ? static_cast<uint32_t>(std::tolower(static_cast<int>(code))) : code;
    const bool joined = (last_caseless_ == 's' && (lower == 's' || lower == 't')) ||
                        (last_caseless_ == 'f' && (lower == 'f' || lower == 'i' || lower == 'l'));
    if (joined) refuse("letters under (?i) that match one ligature");
    last_caseless_ = lower;
    keep_set(folded(single(code)));
  }

  // Adds both cases of each ASCII letter, and the two letters outside ASCII whose lower case is inside.
  CodePointSet folded(const CodePointSet& set) const {
    std::vector<CodeRange> ranges = set.ranges();
    for (uint32_t letter = 'a'; letter <= 'z'; letter++) {
      const uint32_t upper = letter - 'a' + 'A';
      const uint32_t third = letter == 's' ? 0x17F : letter == 'k' ? 0x212A : letter;
      if (!set.contains(letter) && !set.contains(upper) && !set.contains(third)) continue;
      for (const uint32_t code : {letter, upper, third}) ranges.push_back({code, code});
    }
    return CodePointSet(std::move(ranges));
  }

  void boundary(bool negated) {
    const CodePointSet word = shorthand('w');
    const char* const second[] = {negated ? ")(?=" : ")(?!", negated ? ")(?!" : ")(?="};
    keep("(?:(?<=");
    keep_set(word);
    keep(second[0]);
    keep_set(word);
    keep(")|(?<!");
    keep_set(word);
    keep(second[1]);
    keep_set(word);
    keep("))");
  }

  // After the backslash, outside a class.
  void read_escape() {
    if (take("A")) return keep("\\A");
    if (take("z")) return keep("\\z");
    if (take("b")) return boundary(false);
    if (take("B")) return boundary(true);
    uint32_t code = 0;
    if (std::optional<CodePointSet> set = read_escaped_set()) {
      last_caseless_ = 0;
      keep_set(std::move(*set));
    } else if (read_escaped_code(code)) {
      keep_literal(code);
    } else {
      refuse("the escape \\" + std::string(pattern_.substr(at_, 1)));
    }
  }

  // \s, \p{L} …, after the backslash.
  std::optional<CodePointSet> read_escaped_set() {
    if (!more()) refuse("a \\ at its end");
    const char letter = pattern_[at_];
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (lower == 's' || lower == 'd' || lower == 'w' || lower == 'h') {
      at_++;
      const CodePointSet set = shorthand(lower);
      return letter == lower ? set : set.complement();
    }
    if (lower != 'p') return std::nullopt;
    at_++;
    if (!take("{")) refuse("\\p without {}");
    bool negated = letter == 'P';
    if (take("^")) negated = !negated;
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("\\p{ without }");
    const std::string name(pattern_.substr(at_, end - at_));
    CodePointSet set;
    if (!find_property(name, set)) refuse("the property \\p{" + name + "}");
    if (caseless_) refuse("a property under (?i)");
    at_ = end + 1;
    return negated ? set.complement() : set;
  }

  bool read_escaped_code(uint32_t& code) {
    const char letter = pattern_[at_];
    static const std::map<char, uint32_t> kNamed = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'f', '\f'},
                                                    {'v', '\v'}, {'a', '\a'}, {'e', 0x1B}};
    if (const auto named = kNamed.find(letter); named != kNamed.end()) {
      at_++;
      code = named->second;
      return true;
    }
    if (letter == 'x' || letter == 'u') {
      at_++;
      std::string digits;
      if (letter == 'x' && take("{")) {
        const size_t end = pattern_.find('}', at_);
        if (end == std::string_view::npos) refuse("\\x{ without }");
        digits = pattern_.substr(at_, end - at_);
        at_ = end + 1;
      } else {
        const size_t wanted = letter == 'x' ? 2 : 4;
        digits = pattern_.substr(at_, wanted);
        if (digits.size() != wanted) refuse("a code point cut short");
        at_ += wanted;
      }
      const bool hexadecimal = std::all_of(digits.begin(), digits.end(),
                                           [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
      if (digits.empty() || digits.size() > 6 || !hexadecimal) refuse("a code point that is not a number");
      code = static_cast<uint32_t>(std::stoul(digits, nullptr, 16));
      const bool byte = letter == 'x' && digits.size() == 2 && code >= 0x80 && pattern_[at_ - 1] != '}';
      if (byte) refuse("\\x of a byte that is not ASCII");
      if (code > kLastCodePoint || (code >= 0xD800 && code <= 0xDFFF)) refuse("a code point that does not exist");
      return true;
    }
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0) return false;
    code = take_code();
    return true;
  }

  // Reads from after the "[" through its "]". Sets may nest, and && intersects everything on its left with its right.
  CodePointSet read_class(int depth) {
    if (depth > kMaxNesting) refuse("more than 64 nested classes");
    const bool negated = take("^");
    CodePointSet left = CodePointSet::all();
    std::vector<CodeRange> ranges;
    const auto add = [&](const CodePointSet& set) {
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    };
    const auto side = [&] {
      const CodePointSet set(std::move(ranges));
      ranges = {};
      return caseless_ ? folded(set) : set;
    };
    bool first = true;
    for (;; first = false) {
      if (!more()) refuse("a [ without its ]");
      if (looking_at("]")) {
        if (first) refuse("a class that begins with ]");
        at_++;
        break;
      }
      if (looking_at("[:")) refuse("a class [:name:]");
      if (take("[")) {
        add(read_class(depth + 1));
        continue;
      }
      if (take("&&")) {
        left = left.intersected(side());
        continue;
      }
      uint32_t low = 0;
      if (!read_class_code(low, add)) continue;
      uint32_t high = low;
      const bool range = looking_at("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (range) {
        at_++;
        if (looking_at("[") || !read_class_code(high, add)) refuse("a range that ends in a set");
        if (high < low) refuse("a range that runs backwards");
      }
      if (caseless_ && high >= 0x80 && high != 0x17F) refuse("a class of letters outside ASCII under (?i)");
      ranges.push_back({low, high});
    }
    const CodePointSet set = left.intersected(side());
    return negated ? set.complement() : set;
  }

  // Reads one code point of a class. False if it was a set, which was passed to `add`.
  template <typename Add>
  bool read_class_code(uint32_t& code, const Add& add) {
    if (!take("\\")) {
      code = take_code();
      return true;
    }
    if (std::optional<CodePointSet> set = read_escaped_set()) {
      add(*set);
      if (looking_at("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']')
        refuse("a range that begins with a set");
      return false;
    }
    if (take("b")) {
      code = '\b';
      return true;
    }
    if (!read_escaped_code(code)) refuse("the escape \\" + std::string(pattern_.substr(at_, 1)) + " in a class");
    return true;
  }

  // Numbers the classes that the sets distinguish and writes each set as the bytes of its classes.
  ClassPattern emit() {
    std::vector<uint32_t> cuts = {0};
    for (const CodePointSet& set : sets_) {
      for (const CodeRange& range : set.ranges()) {
        cuts.push_back(range.first);
        if (range.last < kLastCodePoint) cuts.push_back(range.last + 1);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

    std::map<std::vector<bool>, int> numbers;
    std::vector<CodePointMap<uint8_t>::Entry> entries;
    std::vector<size_t> next(sets_.size());
    for (size_t i = 0; i < cuts.size(); i++) {
      std::vector<bool> inside(sets_.size());
      for (size_t s = 0; s < sets_.size(); s++) {
        const std::vector<CodeRange>& ranges = sets_[s].ranges();
        while (next[s] < ranges.size() && ranges[next[s]].last < cuts[i]) next[s]++;
        inside[s] = next[s] < ranges.size() && ranges[next[s]].first <= cuts[i];
      }
      const int number = numbers.emplace(inside, static_cast<int>(numbers.size())).first->second;
      if (number > 255) refuse("more than 256 classes of characters");
      const uint32_t last = i + 1 < cuts.size() ? cuts[i + 1] - 1 : kLastCodePoint;
      entries.push_back({{cuts[i], last}, static_cast<uint8_t>(number)});
    }

    ClassPattern result;
    result.classes = CodePointMap<uint8_t>(0, entries);
    for (const Part& part : parts_) {
      if (part.set < 0) {
        result.pattern += part.text;
        continue;
      }
      std::string members;
      for (const auto& [inside, number] : numbers) {
        if (inside[static_cast<size_t>(part.set)]) members += fmt::format("\\x{:02x}", number);
      }
      result.pattern += members.size() == 4 ? members : members.empty() ? "[^\\x00-\\xff]" : "[" + members + "]";
    }
    return result;
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  bool caseless_ = false;
  uint32_t last_caseless_ = 0;  // the previous letter, if it is under (?i)
  std::vector<Part> parts_;
  std::vector<CodePointSet> sets_;
};

}  // namespace

ClassPattern translate_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).translate();
}

}  // namespace megatrain
