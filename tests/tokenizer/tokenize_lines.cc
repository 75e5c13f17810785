// Tokenizes many texts, for comparison with the `tokenizers` library (tests/tokenizer/compare_tokenizers.py).
//
//   tokenize_lines TOKENIZER.json TEXTS IDS
//
// Each text in TEXTS ends in a NUL byte. For each text, IDS receives the number of its ids and the ids (with special
// tokens added), then the number of bytes of its decoded text and these bytes. All counts and ids are little-endian
// int32. Prints only the seconds that encoding took.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/tokenizer/tokenizer.h"

int main(int count, char** arguments) {
  using namespace megatrain;
  if (count != 4) {
    std::fprintf(stderr, "usage: tokenize_lines TOKENIZER.json TEXTS IDS\n");
    return 2;
  }
  try {
    const Tokenizer tokenizer = Tokenizer::from_file(arguments[1]);
    std::ifstream file(arguments[2], std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::vector<std::string_view> texts;
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = all.find('\0', begin);
      texts.push_back(std::string_view(all).substr(begin, end - begin));
      begin = end + 1;
    }
    std::vector<std::vector<int32_t>> ids(texts.size());
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < texts.size(); i++) ids[i] = tokenizer.encode(texts[i], true);
    std::printf("%.6f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::ofstream out(arguments[3], std::ios::binary);
    const auto write = [&](const void* data, size_t bytes) {
      out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    };
    for (const std::vector<int32_t>& tokens : ids) {
      const auto size = static_cast<int32_t>(tokens.size());
      write(&size, 4);
      write(tokens.data(), 4 * tokens.size());
      const std::string text = tokenizer.decode(tokens, false);
      const auto bytes = static_cast<int32_t>(text.size());
      write(&bytes, 4);
      write(text.data(), text.size());
    }
    return out.flush() ? 0 : 5;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
