// Finds special tokens, which a tokenizer takes as a whole, in text.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace megatrain {

class SpecialTokens {
 public:
  struct Found {
    size_t begin = std::string_view::npos;
    std::string_view token;
    explicit operator bool() const { return begin != std::string_view::npos; }
    size_t end() const { return begin + token.size(); }
  };

  void add(const std::string& token);  // empty and known tokens are ignored
  const std::vector<std::string>& all() const { return all_; }
  bool empty() const { return all_.empty(); }
  bool contains(std::string_view token) const { return known_.find(token) != known_.end(); }

  // The longest token that starts at the byte; empty if there is none.
  std::string_view at(std::string_view text, size_t byte) const;
  // The first token that starts at `from` or later.
  Found next(std::string_view text, size_t from) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  std::vector<std::string> all_;  // in order of addition
  std::unordered_set<std::string, Hash, std::equal_to<>> known_;
  std::array<std::vector<size_t>, 256> lengths_;  // of the tokens with this first byte, longest first
};

}  // namespace megatrain
