// The bytes of a vocabulary as a tree, in the order of their texts: a walk over it visits each shared beginning once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

class TokenTrie {
 public:
  // Special tokens are left out, unless `with_special`; so are tokens without a text, and ids from `vocabulary` on.
  TokenTrie(const Tokenizer& tokenizer, int64_t vocabulary, bool with_special);

  struct Node {  // nodes stand in preorder; the first is the root
    uint8_t byte = 0;
    uint16_t depth = 0;
    int32_t end = 0;                      // behind the nodes below it
    int32_t first_token = 0, tokens = 0;  // tokens() whose text ends here
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::string& text_of(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  int64_t vocabulary() const { return static_cast<int64_t>(texts_.size()); }

 private:
  std::vector<std::string> texts_;  // by id; empty: left out
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
};

}  // namespace megatrain
