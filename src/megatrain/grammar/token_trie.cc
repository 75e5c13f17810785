#include "megatrain/grammar/token_trie.h"

#include <algorithm>

namespace megatrain {

TokenTrie::TokenTrie(const Tokenizer& tokenizer, int64_t vocabulary, bool with_special)
    : texts_(static_cast<size_t>(vocabulary)) {
  constexpr size_t kLongest = UINT16_MAX;
  for (int32_t id = 0; id < std::min(vocabulary, tokenizer.vocab_size()); ++id) {
    if (tokenizer.is_special(id) && !with_special) continue;
    std::string& text = texts_[static_cast<size_t>(id)];
    text = tokenizer.bytes_of(id);
    if (text.size() > kLongest) text.clear();
    if (!text.empty()) tokens_.push_back(id);
  }
  std::ranges::stable_sort(tokens_, [&](int32_t a, int32_t b) { return text_of(a) < text_of(b); });

  nodes_.emplace_back();
  std::vector<int32_t> path = {0};  // the nodes of the text before
  const std::string* before = nullptr;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes_.size());
  };
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = text_of(tokens_[i]);
    size_t shared = 0;
    while (before && shared < before->size() && shared < text.size() && (*before)[shared] == text[shared]) ++shared;
    close(shared);
    for (size_t at = shared; at < text.size(); ++at) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(text[at]),
                        .depth = static_cast<uint16_t>(at + 1),
                        .first_token = static_cast<int32_t>(i)});
    }
    ++nodes_[static_cast<size_t>(path.back())].tokens;
    before = &text;
  }
  close(0);
  nodes_.front().end = static_cast<int32_t>(nodes_.size());
}

}  // namespace megatrain
