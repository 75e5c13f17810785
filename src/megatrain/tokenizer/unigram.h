// Unigram: the model of a tokenizer.json that gives every token a score and cuts a word into the tokens whose scores
// have the greatest sum.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "megatrain/tokenizer/piece_trie.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/tokenizer/vocabulary.h"

namespace megatrain {

class Unigram {
 public:
  explicit Unigram(const TokenizerNode& model);

  // Appends the tokens of a word. Characters without a token are unknown: neighbours become one token, or a token for
  // each of their bytes. Thread-safe. Time and memory grow in proportion to the word.
  void encode(std::string_view word, std::vector<ModelToken>& tokens) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  class Lattice;
  class Writer;

  void read_vocabulary(const TokenizerNode& node);

  Vocabulary vocabulary_;
  std::vector<double> scores_;  // by id
  PieceTrie trie_;              // ids by token; of equal tokens the last one
  double unknown_score_ = 0;
  int32_t unknown_ = -1;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> byte_ids_{};  // id of <0xNN>, -1: none
};

// Whether the "model" of a tokenizer.json is a Unigram.
bool is_unigram(const TokenizerNode& model);

}  // namespace megatrain
