#include "megatrain/base/escape.h"

#include <cstdint>
#include <cstdio>

#include "megatrain/base/utf8.h"

namespace megatrain {
namespace {

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
    size_t bad = 0, end = 0;
    const size_t size = valid_utf8_length(text, bad);
    const uint32_t code = size == 0 ? 0 : next_code(text, end);
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
