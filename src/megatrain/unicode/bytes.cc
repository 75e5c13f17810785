#include "megatrain/unicode/bytes.h"

#include "megatrain/unicode/unicode.h"

namespace megatrain {
namespace {

// The byte for each character below U+0144, or -1.
constexpr std::array<int16_t, 324> kCharacterBytes = [] {
  std::array<int16_t, 324> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < 256; byte++) bytes[kByteCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}();

}  // namespace

bool to_bytes(std::string_view text, std::string& bytes) {
  bytes.clear();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const uint32_t code = next_code(at);
    if (code >= kCharacterBytes.size() || kCharacterBytes[code] < 0) return false;
    bytes += static_cast<char>(kCharacterBytes[code]);
  }
  return true;
}

}  // namespace megatrain
