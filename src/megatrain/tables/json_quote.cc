#include "megatrain/tables/json_quote.h"

#include <array>
#include <cstdint>

namespace megatrain {
namespace {

// For each byte: 0 to copy it, 'u' to write \u00XX, otherwise the letter behind the backslash.
constexpr std::array<char, 256> make_escapes() {
  std::array<char, 256> escapes{};
  for (size_t c = 0; c < 0x20; ++c) escapes[c] = 'u';
  escapes['\b'] = 'b';
  escapes['\f'] = 'f';
  escapes['\n'] = 'n';
  escapes['\r'] = 'r';
  escapes['\t'] = 't';
  escapes['"'] = '"';
  escapes['\\'] = '\\';
  return escapes;
}
constexpr std::array<char, 256> kEscapes = make_escapes();

// Whether any of eight bytes is a control character, a quote or a backslash. May say yes without need for bytes from
// 0x80 on.
bool may_need_escape(uint64_t bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
  const auto has_zero = [](uint64_t x) { return (x - kOnes) & ~x & kHigh; };
  const uint64_t controls = (bytes - kOnes * 0x20) & ~bytes & kHigh;
  return (controls | has_zero(bytes ^ (kOnes * '"')) | has_zero(bytes ^ (kOnes * '\\'))) != 0;
}

}  // namespace

void append_json_quoted(std::string& out, std::string_view text) {
  out += '"';
  size_t copied = 0;
  for (size_t i = 0; i < text.size();) {
    uint64_t eight = 0;
    if (i + sizeof eight <= text.size()) {
      text.copy(reinterpret_cast<char*>(&eight), sizeof eight, i);
      if (!may_need_escape(eight)) {
        i += sizeof eight;
        continue;
      }
    }
    const auto byte = static_cast<unsigned char>(text[i]);
    const char escape = kEscapes[byte];
    if (escape == 0) {
      ++i;
      continue;
    }
    out.append(text, copied, i - copied);
    out += '\\';
    out += escape;
    if (escape == 'u') {
      constexpr char kDigits[] = "0123456789abcdef";
      out += "00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
    copied = ++i;
  }
  out.append(text, copied, std::string_view::npos);
  out += '"';
}

}  // namespace megatrain
