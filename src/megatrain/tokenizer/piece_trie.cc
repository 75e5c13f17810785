#include "megatrain/tokenizer/piece_trie.h"

namespace megatrain {

PieceTrie::PieceTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  // Entries [begin, end) share their first `depth` bytes, which lead to a node. Nodes are filled in order.
  struct Share {
    size_t begin = 0, end = 0, depth = 0;
  };
  std::vector<Share> shares = {{0, entries.size(), 0}};
  nodes_.emplace_back();
  for (size_t node = 0; node < nodes_.size(); node++) {
    Share share = shares[node];
    if (share.begin < share.end && entries[share.begin].text.size() == share.depth) {
      nodes_[node].value = entries[share.begin++].value;
    }
    nodes_[node].children = static_cast<uint32_t>(nodes_.size());
    while (share.begin < share.end) {
      const char byte = entries[share.begin].text[share.depth];
      size_t end = share.begin + 1;
      while (end < share.end && entries[end].text[share.depth] == byte) end++;
      shares.push_back({share.begin, end, share.depth + 1});
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      nodes_[node].count++;
      share.begin = end;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].count; i++) first_[nodes_[nodes_[0].children + i].byte] = nodes_[0].children + i;
}

}  // namespace megatrain
