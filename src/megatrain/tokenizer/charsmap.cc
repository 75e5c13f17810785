#include "megatrain/tokenizer/charsmap.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/utf8.h"
#include "megatrain/unicode/graphemes.h"

namespace megatrain {
namespace {

constexpr size_t kLongGrapheme = 6;  // bytes

// A unit of the double array. A node's children are at its place ^ offset ^ byte; offset ^ 0 holds its value.
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFFu); }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

// -1: not of the alphabet.
int sextet(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

std::string from_base64(const TokenizerNode& node) {
  std::string_view text = node.text();
  if (text.size() % 4 != 0) node.refuse("is not base64: its length is not a multiple of 4");
  for (int padding = 0; padding < 2 && text.ends_with('='); padding++) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = sextet(c);
    if (value < 0) node.refuse("is not base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 255);
    }
  }
  return bytes;
}

}  // namespace

Charsmap::Charsmap(const TokenizerNode& node) {
  const TokenizerNode map = node.at("precompiled_charsmap");
  where_ = map.where();
  const std::string bytes = from_base64(map);
  const auto number = [&](size_t at) {
    std::array<unsigned char, 4> little{};
    std::memcpy(little.data(), bytes.data() + at, 4);
    return little[0] | uint32_t{little[1]} << 8 | uint32_t{little[2]} << 16 | uint32_t{little[3]} << 24;
  };
  if (bytes.size() < 8) map.refuse("is too short for a map of characters");
  const uint32_t size = number(0);
  if (size % 4 != 0 || size == 0 || size > bytes.size() - 4) {
    map.refuse(fmt::format("gives its double array {} bytes of {}", size, bytes.size() - 4));
  }
  units_.resize(size / 4);
  for (size_t i = 0; i < units_.size(); i++) units_[i] = number(4 + 4 * i);
  texts_ = bytes.substr(4 + size);
  if (!is_valid_utf8(texts_)) map.refuse("has replacements that are not UTF-8");
}

void Charsmap::refuse_array() const {
  fail_input(fmt::format("{} refers to a place outside it; correct the file or download it again.", where_));
}

uint32_t Charsmap::unit(uint32_t at) const {
  if (at >= units_.size()) refuse_array();
  return units_[at];
}

std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  uint32_t node = offset_of(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    node ^= byte;
    const uint32_t found = unit(node);
    if (label_of(found) != byte) return std::nullopt;
    node ^= offset_of(found);
    if (!has_value(found)) continue;
    const uint32_t place = value_of(unit(node));
    if (place > texts_.size() || (place < texts_.size() && !is_utf8_boundary(texts_[place]))) refuse_array();
    return std::string_view(texts_).substr(place, texts_.find('\0', place) - place);
  }
  return std::nullopt;
}

bool Charsmap::leaves_alone(std::string_view text) const {
  return std::all_of(text.begin(), text.end(), [&](const char& c) {
    const bool alone = static_cast<unsigned char>(c) < 0x80 && c != '\r';  // a grapheme of one byte
    return alone && !replacement(std::string_view(&c, 1));
  });
}

AlignedText Charsmap::apply(const AlignedText& text, size_t most) const {
  AlignedText result;
  result.tracked = text.tracked;
  const std::string_view all = text.text;
  const auto replace = [&](size_t begin, size_t end) {
    const std::optional<std::string_view> found = replacement(all.substr(begin, end - begin));
    if (found) result.append(*found, {text.origin(begin).begin, text.origin(end - 1).end});
    return found.has_value();
  };
  for (size_t begin = 0, end = 0; begin < all.size() && result.text.size() <= most; begin = end) {
    end = grapheme_end(all, begin);
    if (end - begin < kLongGrapheme && replace(begin, end)) continue;
    for (size_t at = begin; at < end;) {
      const size_t next = at + utf8_length(all[at]);
      if (!replace(at, next)) result.append_part(text, at, next);
      at = next;
    }
  }
  return result;
}

}  // namespace megatrain
