#include "megatrain/base/escape.h"

#include <cstdint>
#include <cstdio>

namespace megatrain {
namespace {

// The bytes of the UTF-8 character that `text` begins with, and its code point; 0: it begins with none.
size_t read_code(std::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(0);
  const size_t size = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size == 0 || size > text.size()) return 0;
  code = size == 1 ? first : first & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return code < kLeast[size] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : size;
}

bool is_hidden(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

void append_number(std::string& out, const char* format, uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof text, format, number);
  out += text;
}

std::string escape(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t size = read_code(text, code);
    if (size == 0) {
      append_number(out, "\\x%02x", static_cast<unsigned char>(text[0]));
    } else if (code == '\n' || code == '\t') {
      out += lines ? std::string(1, text[0]) : code == '\n' ? "\\n" : "\\t";
    } else if (is_hidden(code)) {
      append_number(out, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

}  // namespace

std::string escape_controls(std::string_view text) { return escape(text, true); }

std::string escape_line(std::string_view text) { return escape(text, false); }

}  // namespace megatrain
