// A set of token ids, one bit each.
#pragma once

#include <cstdint>
#include <vector>

namespace megatrain {

class TokenSet {
 public:
  explicit TokenSet(int64_t vocabulary) : words_(static_cast<size_t>((vocabulary + 63) / 64)) {}

  void add(int32_t id) { words_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); }
  bool has(int32_t id) const {
    const size_t word = static_cast<size_t>(id) / 64;
    return word < words_.size() && (words_[word] >> (id % 64) & 1) != 0;
  }
  bool empty() const {
    for (const uint64_t word : words_)
      if (word != 0) return false;
    return true;
  }
  int64_t bytes() const { return static_cast<int64_t>(words_.size() * sizeof(uint64_t)); }
  bool operator==(const TokenSet&) const = default;

 private:
  std::vector<uint64_t> words_;
};

}  // namespace megatrain
