// Text between the input and the model, and where in the input each of its bytes came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/unicode/unicode.h"

namespace megatrain {

// Bytes [begin, end) of the input.
struct ByteRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

// Valid UTF-8. `origins` has one entry per byte (the characters of the input it came from), or is empty if not tracked.
struct AlignedText {
  std::string text;
  std::vector<ByteRange> origins;
  bool tracked = false;

  void clear(bool track) {
    text.clear();
    origins.clear();
    tracked = track;
  }
  void append(std::string_view bytes, ByteRange origin) {
    text += bytes;
    if (tracked) origins.insert(origins.end(), bytes.size(), origin);
  }
  void append_code(uint32_t code, ByteRange origin) {
    append_utf8(text, code);
    if (tracked) origins.resize(text.size(), origin);
  }
  // Appends bytes [begin, end) of another text.
  void append_part(const AlignedText& other, size_t begin, size_t end) {
    text.append(other.text, begin, end - begin);
    if (tracked) {
      origins.insert(origins.end(), other.origins.begin() + static_cast<std::ptrdiff_t>(begin),
                     other.origins.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  ByteRange origin(size_t byte) const { return tracked ? origins[byte] : ByteRange{}; }
  // The empty range before the byte, which may be the end of the text.
  ByteRange place(size_t byte) const {
    if (!tracked || origins.empty()) return {};
    const uint32_t at = byte < origins.size() ? origins[byte].begin : origins.back().end;
    return {at, at};
  }
};

}  // namespace megatrain
