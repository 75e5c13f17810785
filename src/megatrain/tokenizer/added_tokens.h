// Tokens added to a vocabulary. They are matched as a whole, before the text is split.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatrain/tokenizer/normalizer.h"
#include "megatrain/tokenizer/pre_tokenizer.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/tokenizer/vocabulary.h"

namespace megatrain {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  std::string written;  // as it appears in normalized text; the content itself if not `normalized`
  bool single_word = false;
  bool left_strip = false;
  bool right_strip = false;
  bool normalized = false;
  bool special = false;

  bool operator==(const AddedToken&) const = default;
};

// A token from a file beside tokenizer.json. If it has an id, that is the id in its file, not the one it will get.
struct ConfigToken {
  enum class Priority {
    always,         // even over a token of tokenizer.json with the same text
    if_id_is_free,  // if no token of tokenizer.json has its id
    if_not_added,   // if no added token has its text
    if_known,       // if no added token has its text, and the vocabulary does
  };
  AddedToken token;
  Priority priority = Priority::always;
};

// Finds the leftmost match of a set of texts, and the longest one there.
class TextFinder {
 public:
  TextFinder() { nodes_.emplace_back(); }
  bool empty() const { return nodes_.size() == 1; }
  bool add(std::string_view text, int32_t value);  // false if it exists already
  // Searches from `from` on; false if there is no match.
  bool find(std::string_view text, size_t from, ByteRange& range, int32_t& value) const;

 private:
  struct Node {
    std::vector<std::pair<char, int32_t>> next;  // sorted by byte
    int32_t value = -1;
  };
  int32_t child(int32_t node, char byte) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // `list` is tokenizer.json's "added_tokens". Tokens that the model lacks get the ids after its vocabulary, in the
  // order of the file, then of `more`.
  AddedTokens(const TokenizerNode& list, const std::vector<ConfigToken>& more, const Vocabulary& model,
              const Normalizer& normalizer);

  // Appends `piece`, split at tokens of one kind: those matched before normalizing, or those matched after.
  void cut(const TextPiece& piece, bool after_normalizing, std::vector<TextPiece>& out) const;

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::unordered_map<int32_t, AddedToken>& by_id() const { return by_id_; }
  // The tokens of `more` that differ from tokenizer.json alone, in order.
  const std::vector<AddedToken>& beyond_file() const { return beyond_file_; }
  // Whether the text is that of a special token.
  bool is_special(const std::string& text) const { return special_.contains(text); }

 private:
  void add(AddedToken token, const Vocabulary& model, const Normalizer& normalizer);

  int32_t next_id_ = 0;
  std::vector<AddedToken> beyond_file_;
  std::unordered_map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<std::string, bool> special_;
  TextFinder before_, after_;
};

}  // namespace megatrain
