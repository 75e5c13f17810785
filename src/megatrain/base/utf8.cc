#include "megatrain/base/utf8.h"

#include <cstring>

namespace megatrain {

size_t valid_utf8_length(std::string_view text, size_t& bad) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = utf8_length(text[0]);
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; i++) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return 0;
    bad = i + 1;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight = 0;
    if (text.size() - at >= 8) {
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    size_t bad = 0;
    const size_t length = valid_utf8_length(text.substr(at), bad);
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string utf8_lossy(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string result;
  result.reserve(bytes.size() + 8);
  while (!bytes.empty()) {
    size_t bad = 0;
    const size_t length = valid_utf8_length(bytes, bad);
    result += length > 0 ? bytes.substr(0, length) : "\xEF\xBF\xBD";
    bytes.remove_prefix(length > 0 ? length : bad);
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

}  // namespace megatrain
