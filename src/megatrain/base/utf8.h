// UTF-8: the only decoder and encoder in the tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

// Length in bytes of the valid sequence that `text` begins with, or 0. If it is 0, `bad` is the length of the maximal
// invalid part. `text` is not empty.
size_t valid_utf8_length(std::string_view text, size_t& bad);

// Position of the first byte that is not valid UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);
inline bool is_valid_utf8(std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; }

// Each maximal invalid part becomes U+FFFD.
std::string utf8_lossy(std::string_view bytes);

void append_utf8(std::string& text, uint32_t code);

// Length in bytes of the character that begins with this byte. The text is valid UTF-8.
inline size_t utf8_length(char first) {
  const auto lead = static_cast<unsigned char>(first);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// The code point at `at`, which is moved past it. The text is valid UTF-8.
inline uint32_t next_code(const char*& at) {
  const auto* p = reinterpret_cast<const unsigned char*>(at);
  const uint32_t lead = p[0];
  if (lead < 0x80) {
    at += 1;
    return lead;
  }
  if (lead < 0xE0) {
    at += 2;
    return (lead & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  }
  if (lead < 0xF0) {
    at += 3;
    return (lead & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  }
  at += 4;
  return (lead & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

inline uint32_t next_code(std::string_view text, size_t& at) {
  const char* p = text.data() + at;
  const uint32_t code = next_code(p);
  at = static_cast<size_t>(p - text.data());
  return code;
}

// Whether a character begins at this byte. The text is valid UTF-8.
inline bool is_utf8_boundary(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

}  // namespace megatrain
