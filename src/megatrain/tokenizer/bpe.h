// Byte-pair encoding: the model of a tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/tokenizer/hash_tables.h"
#include "megatrain/tokenizer/tokenizer_json.h"
#include "megatrain/tokenizer/vocabulary.h"
#include "megatrain/unicode/unicode.h"

namespace megatrain {

class Bpe {
 public:
  // With `words_are_bytes`, words are given as raw bytes although the vocabulary is written in byte characters.
  Bpe(const TokenizerNode& model, bool words_are_bytes);

  // Appends the tokens of a word, from this thread's cache if it has the word. Thread-safe.
  void encode(std::string_view word, std::vector<ModelToken>& tokens) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Symbol;
  struct Scratch;

  void read_vocabulary(const TokenizerNode& node);
  void read_merges(const TokenizerNode& node);
  void prepare_characters();
  void encode_part(std::string_view part, uint32_t shift, std::vector<ModelToken>& tokens) const;
  void encode_uncached(std::string_view word, std::vector<ModelToken>& tokens) const;
  void to_symbols(std::string_view word, std::vector<Symbol>& symbols) const;
  int32_t character_id(std::string_view word, size_t begin, size_t& end, std::string& written) const;
  bool push_bytes(std::string_view character, size_t begin, size_t end, std::vector<Symbol>& symbols) const;
  void merge_few(std::vector<Symbol>& symbols) const;
  void merge_many(std::vector<Symbol>& symbols, std::vector<uint64_t>& queue) const;
  void refresh_pair(std::vector<Symbol>& symbols, int32_t left) const;

  Vocabulary vocabulary_;  // as written in the file
  StringTable words_;      // in the form of the words that are encoded
  PairTable merges_;
  bool words_are_bytes_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  bool byte_fallback_ = false;
  int32_t unknown_ = -1;
  std::optional<std::string> unknown_missing_;  // the unk_token, if the vocabulary lacks it
  std::string prefix_, suffix_;                 // continuing_subword_prefix, end_of_word_suffix
  std::array<int32_t, 256> byte_ids_{};         // id of each byte of a word, -1: none (words_are_bytes_)
  std::array<int32_t, 256> fallback_ids_{};     // id of <0xNN>, -1: none
  CodePointMap<int32_t> character_ids_;         // id of each character of a word, -1: none
  // A character that no token holds after another character, so that words can be split before it; empty: there is
  // none.
  std::string word_start_;
  uint64_t number_ = 0;  // marks this model's entries in the cache
};

}  // namespace megatrain
