// The tokens of a model, by id and by text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/tokenizer/hash_tables.h"

namespace megatrain {

// A token of a word.
struct ModelToken {
  int32_t id = 0;
  uint32_t begin = 0;  // bytes [begin, end) of the word
  uint32_t end = 0;
};

class Vocabulary {
 public:
  // Empties the vocabulary and makes space for `count` tokens.
  void reserve(size_t count) {
    tokens_.clear();
    present_.clear();
    ids_.reserve(count);
  }
  // The id must be free. A text that has an id already keeps it.
  void add(const std::string& token, int32_t id) {
    const auto at = static_cast<size_t>(id);
    if (at >= tokens_.size()) {
      tokens_.resize(at + 1);
      present_.resize(at + 1);
    }
    tokens_[at] = token;
    present_[at] = true;
    ids_.insert(token, id);
    entries_++;
  }

  int32_t id_of(std::string_view token) const { return ids_.find(token); }  // -1: none
  const std::string* token_of(int32_t id) const {                           // null: none
    const bool known = id >= 0 && id <= last_id() && present_[static_cast<size_t>(id)];
    return known ? &tokens_[static_cast<size_t>(id)] : nullptr;
  }
  int64_t entries() const { return entries_; }
  int32_t last_id() const { return static_cast<int32_t>(tokens_.size()) - 1; }

 private:
  std::vector<std::string> tokens_;  // by id; ids that the vocabulary skips are empty and not in `present_`
  std::vector<bool> present_;
  StringTable ids_;
  int64_t entries_ = 0;
};

}  // namespace megatrain
