// The output of tests/tokenizer/make_tokenizer_goldens.py.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "megatrain/io/json.h"
#include "tests/support/places.h"

namespace megatrain::testing {

inline std::string golden_path(const std::string& name) { return in_repository("tests/tokenizer/goldens/") + name; }

inline nlohmann::json read_golden(const std::string& name) {
  std::ifstream file(golden_path(name), std::ios::binary);
  return nlohmann::json::parse(std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

inline const std::vector<std::string>& golden_texts() {
  static const auto texts = read_golden("texts.json").get<std::vector<std::string>>();
  return texts;
}

// 32-bit FNV-1a, in hexadecimal.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x01000193u;
  }
  void add_number(uint32_t number) {
    for (int i = 0; i < 4; i++) value_ = (value_ ^ (number >> (8 * i) & 255)) * 0x01000193u;
  }
  std::string hex() const { return fmt::format("{:08x}", value_); }

 private:
  uint32_t value_ = 0x811C9DC5u;
};

// One hash for every ten results, joined by \x02.
inline std::string hash_in_tens(const std::vector<std::string>& results) {
  std::string all;
  for (size_t begin = 0; begin < results.size(); begin += 10) {
    Hash hash;
    for (size_t i = begin; i < results.size() && i < begin + 10; i++) {
      if (i > begin) hash.add("\x02");
      hash.add(results[i]);
    }
    all += hash.hex();
  }
  return all;
}

}  // namespace megatrain::testing
