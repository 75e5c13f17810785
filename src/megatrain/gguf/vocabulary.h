// A model's tokenizer as GGUF's metadata: its tokens and how text becomes them, the special ones, the chat template.
//
// llama.cpp knows two tokenizers that ours can be: "gpt2", byte-level BPE whose way of cutting text into words has a
// name (tokenizer.ggml.pre), and "llama", SentencePiece's BPE by scores. What neither of them would tokenise alike is
// refused by name; what they tokenise otherwise in rare texts is told in a line of the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/chat/model_text.h"
#include "megatrain/gguf/gguf_file.h"
#include "megatrain/io/json.h"

namespace megatrain {

// `vocab` is the number of rows of the model's embedding: ids that the tokenizer lacks become unused tokens, and
// tokens above it are left out. Throws Error(bad_input).
void add_vocabulary(const ModelText& text, int64_t vocab, GgufMetadata& metadata);

// general.name. llama.cpp goes by it: in a model that is called phi-3, special tokens take the white space behind them,
// and some must be there. So the name of a model with such a tokenizer says phi-3, and that of another does not.
std::string name_for_llama(const std::string& name, const ModelText& text);

// The parts of add_vocabulary().

// A file's tokenizer.json, opened once.
struct TokenizerFile {
  std::string path;
  nlohmann::json json;
};

// tokenizer.ggml.pre of a byte-level tokenizer. Throws Error(bad_input) where llama.cpp has none that cuts alike.
std::string pre_tokenizer_name(const TokenizerFile& file);

// Merges as "left right".
std::vector<std::string> merge_texts(const TokenizerFile& file);

// Whether llama.cpp puts a space before a text, as a SentencePiece tokenizer's file says. Throws Error(bad_input) where
// it cuts or changes text in another way.
bool piece_space_prefix(const TokenizerFile& file);

// The score of every id below `vocab`, from which llama.cpp's tokenizer makes the merges of the file: minus the rank of
// the first merge that makes the token. Throws Error(bad_input) where the merges are not those of such scores.
std::vector<float> piece_scores(const TokenizerFile& file, const Tokenizer& tokenizer, int64_t vocab);

}  // namespace megatrain
