// Open-addressed tables that a model consults for every word and every pair.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

inline uint64_t mix_hash(uint64_t value) {
  value ^= value >> 32;
  value *= 0x9E3779B97F4A7C15u;
  value ^= value >> 29;
  value *= 0xBF58476D1CE4E5B9u;
  return value ^ value >> 32;
}

inline uint64_t hash_bytes(std::string_view text) {
  uint64_t hash = 0x243F6A8885A308D3u ^ text.size() * 0x9E3779B97F4A7C15u;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    hash = (hash ^ eight) * 0x9FB21C651E98DF25u;
    hash ^= hash >> 32;
  }
  uint64_t rest = 0;
  for (size_t i = 0; i < left; i++) rest |= uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
  return mix_hash(hash ^ rest);
}

// Maps strings to non-negative ids.
class StringTable {
 public:
  // Empties the table and makes space for `count` strings.
  void reserve(size_t count) {
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    slots_.assign(slots, {});
    bytes_.clear();
    size_ = 0;
  }
  size_t size() const { return size_; }

  // False if it exists already. At most the reserved count may be inserted.
  bool insert(std::string_view text, int32_t id) {
    size_t at = hash_bytes(text) & (slots_.size() - 1);
    for (; slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1)) {
      if (string_at(slots_[at]) == text) return false;
    }
    slots_[at] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size()), id};
    bytes_ += text;
    size_++;
    return true;
  }

  int32_t find(std::string_view text) const {
    if (slots_.empty()) return -1;
    for (size_t at = hash_bytes(text) & (slots_.size() - 1); slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1)) {
      if (string_at(slots_[at]) == text) return slots_[at].id;
    }
    return -1;
  }

 private:
  struct Slot {
    uint32_t begin = 0;
    uint32_t size = 0;
    int32_t id = -1;
  };
  std::string_view string_at(const Slot& slot) const { return std::string_view(bytes_).substr(slot.begin, slot.size); }

  std::vector<Slot> slots_;
  std::string bytes_;
  size_t size_ = 0;
};

// The token that a pair merges into, and the merge's priority.
struct Merge {
  uint32_t rank = UINT32_MAX;
  int32_t id = -1;
};

class PairTable {
 public:
  void reserve(size_t count) {
    size_t slots = 16;
    while (slots < 2 * count) slots *= 2;
    slots_.assign(slots, {});
  }
  // A later merge of the same pair replaces an earlier one.
  void insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    size_t at = mix_hash(key) & (slots_.size() - 1);
    while (slots_[at].merge.id >= 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, merge};
  }
  // Rank UINT32_MAX if there is none.
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = mix_hash(key) & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].merge.id < 0) return {};
      if (slots_[at].key == key) return slots_[at].merge;
    }
  }

 private:
  struct Slot {
    uint64_t key = 0;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  std::vector<Slot> slots_;
};

}  // namespace megatrain
