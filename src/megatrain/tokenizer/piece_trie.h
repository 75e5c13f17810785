// Finds every text of a set that a given text starts with.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megatrain {

class PieceTrie {
 public:
  struct Entry {
    std::string_view text;  // not empty
    int32_t value = 0;      // not negative
  };
  PieceTrie() = default;
  explicit PieceTrie(std::vector<Entry> entries);  // whose texts differ

  // Calls visit(bytes, value) for each entry that `text` starts with, the shortest first.
  template <typename Visit>
  void each_prefix(std::string_view text, const Visit& visit) const {
    if (nodes_.empty() || text.empty()) return;
    uint32_t node = first_[static_cast<unsigned char>(text[0])];
    for (size_t bytes = 1; node != 0; bytes++) {
      if (nodes_[node].value >= 0) visit(bytes, nodes_[node].value);
      if (bytes == text.size()) return;
      node = child(nodes_[node], static_cast<unsigned char>(text[bytes]));
    }
  }

 private:
  // The children of a node lie side by side, ordered by byte.
  struct Node {
    uint32_t children = 0;  // the first one
    int32_t value = -1;     // -1: no entry ends here
    uint16_t count = 0;
    uint8_t byte = 0;
  };

  // 0, the root: none.
  uint32_t child(const Node& node, uint8_t byte) const {
    const Node* const begin = nodes_.data() + node.children;
    const Node* const end = begin + node.count;
    const Node* const found =
        std::lower_bound(begin, end, byte, [](const Node& each, uint8_t value) { return each.byte < value; });
    return found != end && found->byte == byte ? static_cast<uint32_t>(found - nodes_.data()) : 0;
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> first_{};  // the root's child for each byte
};

}  // namespace megatrain
