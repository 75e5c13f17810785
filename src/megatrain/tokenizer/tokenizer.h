// Text to token ids and back, following a model's tokenizer.json. The ids are those of the `tokenizers` library.
//
// Supports byte-level BPE (GPT-2, Llama 3, Qwen, Tekken, DeepSeek), SentencePiece-style BPE (Llama 2, Mistral, Gemma)
// and Unigram (LLM-jp, T5).
// Anything unsupported in a file is Error(bad_input) at loading. "truncation" and "padding" are left to the code that
// builds batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatrain/tokenizer/bpe.h"
#include "megatrain/tokenizer/decoder.h"
#include "megatrain/tokenizer/normalizer.h"
#include "megatrain/unicode/aligned_text.h"
#include "megatrain/tokenizer/pre_tokenizer.h"
#include "megatrain/tokenizer/added_tokens.h"
#include "megatrain/tokenizer/unigram.h"

namespace megatrain {

// Ids, and for each the bytes of the input it came from: whole characters, spaces included. Tokens that the
// post-processor adds have an empty range.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<ByteRange> ranges;
};

class Tokenizer {
 public:
  // `more` are tokens from the files beside it.
  static Tokenizer from_file(const std::string& path, const std::vector<ConfigToken>& more = {});
  // `file` names the text in errors.
  static Tokenizer from_json(std::string_view text, const std::string& file, const std::vector<ConfigToken>& more = {});

  // These are thread-safe. Text that is not UTF-8 is Error(bad_input). Texts must be below 4 GiB.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  Encoding encode_with_ranges(std::string_view text, bool add_special_tokens) const;
  // Ids that the vocabulary lacks are skipped; invalid UTF-8 becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  int32_t id_of(std::string_view token) const;  // -1: none
  std::string token_of(int32_t id) const;       // empty: none
  // The bytes that the id adds within a text; special tokens add their own. Empty: none.
  std::string bytes_of(int32_t id) const;
  bool is_special(int32_t id) const;
  int64_t vocab_size() const { return vocab_size_; }  // one above the highest id
  // Added tokens that differ from tokenizer.json alone.
  const std::vector<AddedToken>& tokens_beyond_file() const { return added_.beyond_file(); }
  const AddedTokens& added() const { return added_; }

 private:
  Tokenizer(const TokenizerNode& root, const std::vector<ConfigToken>& more);

  const Vocabulary& vocabulary() const;

  struct TemplatePart {
    bool text = false;  // the place of the input's tokens
    std::vector<int32_t> ids;
  };
  void read_post_processor(const TokenizerNode& node);
  void encode_into(std::string_view text, std::vector<int32_t>& ids, std::vector<ByteRange>* ranges) const;
  Encoding encode_all(std::string_view text, bool add_special_tokens, bool track) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::variant<Bpe, Unigram> model_;
  AddedTokens added_;
  Decoder decoder_;
  std::vector<TemplatePart> template_;  // empty: only the input's tokens
  int64_t vocab_size_ = 0;
};

// Decodes ids one by one and holds back bytes until they form whole characters.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  std::string add(int32_t id);  // the text that is certain by now, often empty
  std::string finish();         // what was held back

 private:
  std::string fresh() const;

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> ids_;  // the last ones, starting with those whose text was already given
  std::string given_;         // the text of the first `given_count_` of them
  size_t given_count_ = 0;
};

}  // namespace megatrain
