// Sets of code points, and maps over all of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "megatrain/base/utf8.h"

namespace megatrain {

struct CodeRange {
  uint32_t first = 0;
  uint32_t last = 0;
};

// Ranges are ascending, disjoint and not adjacent.
class CodePointSet {
 public:
  CodePointSet() = default;
  explicit CodePointSet(std::vector<CodeRange> ranges);  // in any order
  static CodePointSet of(const uint32_t* pairs, int size);
  static CodePointSet all() { return CodePointSet({{0, kLastCodePoint}}); }

  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool contains(uint32_t code) const;
  CodePointSet complement() const;
  CodePointSet united(const CodePointSet& other) const;
  CodePointSet intersected(const CodePointSet& other) const;

 private:
  std::vector<CodeRange> ranges_;
};

// A value for each code point, in pages of 256; equal pages are stored once.
template <typename T>
class CodePointMap {
 public:
  CodePointMap() : values_(256) {}
  struct Entry {
    CodeRange range;
    T value;
  };
  // Entries are in ascending order and do not overlap.
  CodePointMap(T other, const std::vector<Entry>& entries) : values_(256, other) {
    std::unordered_map<std::string, uint16_t> known;  // by the page's bytes
    std::vector<T> page(256);
    size_t next = 0;
    for (uint32_t begin = 0; begin <= kLastCodePoint; begin += 256) {
      if (next == entries.size() || entries[next].range.first >= begin + 256) continue;  // the first page, all `other`
      page.assign(256, other);
      for (; next < entries.size() && entries[next].range.first < begin + 256; next++) {
        const CodeRange& range = entries[next].range;
        const uint32_t first = std::max(range.first, begin) - begin, last = std::min(range.last, begin + 255) - begin;
        std::fill(page.begin() + first, page.begin() + last + 1, entries[next].value);
        if (range.last >= begin + 256) break;
      }
      std::string bytes(reinterpret_cast<const char*>(page.data()), page.size() * sizeof(T));
      const auto [place, added] = known.emplace(std::move(bytes), static_cast<uint16_t>(values_.size() / 256));
      if (added) values_.insert(values_.end(), page.begin(), page.end());
      pages_[begin / 256] = place->second;
    }
  }
  T operator[](uint32_t code) const { return values_[size_t{pages_[code >> 8]} * 256 + (code & 255)]; }

 private:
  std::array<uint16_t, (kLastCodePoint + 1) / 256> pages_{};
  std::vector<T> values_;
};

CodePointMap<uint8_t> membership(const CodePointSet& set);  // 1 inside

// "L", "Lu", "Letter", "Uppercase_Letter", "Han", "Any" and so on, in upper or lower case, with or without "_", "-" and
// spaces. False if unknown.
bool find_property(std::string_view name, CodePointSet& set);

}  // namespace megatrain
