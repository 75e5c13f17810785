// The byte-level alphabet: each byte is written as one visible character, so that a vocabulary can spell any text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

// Printable bytes map to themselves, the others, in order, to U+0100 and up.
inline constexpr std::array<uint16_t, 256> kByteCharacters = [] {
  std::array<uint16_t, 256> characters{};
  uint16_t next = 256;
  for (unsigned byte = 0; byte < 256; byte++) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    characters[byte] = printable ? static_cast<uint16_t>(byte) : next++;
  }
  return characters;
}();

// Decodes a text of byte characters; false if it holds any other character.
bool to_bytes(std::string_view text, std::string& bytes);

}  // namespace megatrain
