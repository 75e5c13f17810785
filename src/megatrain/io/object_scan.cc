#include "megatrain/io/object_scan.h"

#include <algorithm>
#include <charconv>

namespace megatrain {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Walks over one value after another. Every function returns false at the first thing it does not understand.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  // Calls `member` with the name and the text of each value; returns false as soon as `member` does.
  template <class Member>
  bool object(int depth, const Member& member) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      std::string_view key, value;
      skip_blanks();
      if (!string(key) || !take(':')) return false;
      skip_blanks();
      const char* const begin = at_;
      if (!this->value(depth)) return false;
      value = {begin, at_};
      if (!member(key, value)) return false;
    } while (take(','));
    return take('}');
  }

  bool at_end() {
    skip_blanks();
    return at_ == end_;
  }

 private:
  static constexpr int kMostLevels = 16;

  void skip_blanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  bool take(char c) {
    skip_blanks();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool string(std::string_view& text) {
    if (at_ == end_ || *at_ != '"') return false;
    const char* const begin = ++at_;
    for (; at_ < end_ && *at_ != '"'; ++at_) {
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte < 0x20 || byte >= 0x7f || byte == '\\') return false;
    }
    if (at_ == end_) return false;
    text = {begin, at_++};
    return true;
  }

  bool digits() {
    const char* const begin = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return at_ > begin;
  }

  bool number() {
    constexpr std::ptrdiff_t kLongest = 32, kExponent = 2;  // in characters; far from infinity
    const char* const begin = at_;
    if (*at_ == '-') ++at_;
    if (at_ < end_ && *at_ == '0') {
      ++at_;
    } else if (!digits()) {
      return false;
    }
    if (at_ < end_ && *at_ == '.') {
      ++at_;
      if (!digits()) return false;
    }
    if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      const char* const exponent = at_;
      if (!digits() || at_ - exponent > kExponent) return false;
    }
    return at_ - begin <= kLongest;
  }

  bool word(std::string_view expected) {
    if (!std::string_view(at_, end_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }

  bool array(int depth) {
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      skip_blanks();
      if (!value(depth)) return false;
    } while (take(','));
    return take(']');
  }

  bool value(int depth) {
    if (at_ == end_ || depth == kMostLevels) return false;
    std::string_view unused;
    switch (*at_) {
      case '"': return string(unused);
      case '{': return object(depth + 1, [](std::string_view, std::string_view) { return true; });
      case '[': return array(depth + 1);
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }

  const char *at_, *end_;
};

template <class Number>
std::optional<Number> read_whole(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace

bool scan_object(std::string_view line, std::span<const std::string_view> keys, std::span<std::string_view> values) {
  std::fill(values.begin(), values.end(), std::string_view());
  Scanner scanner(line);
  const auto keep = [&](std::string_view key, std::string_view value) {
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) return true;
    std::string_view& kept = values[static_cast<size_t>(found - keys.begin())];
    if (!kept.empty()) return false;  // duplicate key
    kept = value;
    return true;
  };
  return scanner.object(0, keep) && scanner.at_end();
}

std::optional<int64_t> scanned_integer(std::string_view value) { return read_whole<int64_t>(value); }

std::optional<double> scanned_number(std::string_view value) {
  if (value.empty() || (value.front() != '-' && !is_digit(value.front()))) return {};
  return read_whole<double>(value);
}

std::optional<std::string_view> scanned_text(std::string_view value) {
  if (value.size() < 2 || value.front() != '"') return {};
  return value.substr(1, value.size() - 2);
}

}  // namespace megatrain
