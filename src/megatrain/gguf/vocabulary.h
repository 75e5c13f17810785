// A model's tokenizer as GGUF metadata: tokens, how text is split into them, special tokens, and the chat template.
//
// llama.cpp has two tokenizers that can match ours. "gpt2" is byte-level BPE with a named pre-tokenizer
// (tokenizer.ggml.pre), and "llama" is SentencePiece BPE with scores. Tokenizers that neither can reproduce are refused
// by name; differences in rare texts are logged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/chat/model_text.h"
#include "megatrain/gguf/gguf_file.h"
#include "megatrain/io/json.h"

namespace megatrain {

// `vocab` is the number of rows of the model's embedding. Ids that the tokenizer lacks become unused tokens, and tokens
// beyond it are left out. Throws Error(bad_input).
void add_vocabulary(const ModelText& text, int64_t vocab, GgufMetadata& metadata);

// general.name, which changes what llama.cpp does: in a model called phi-3, special tokens strip the white space after
// them, and some tokens are required. So the name contains phi-3 exactly if the tokenizer is of that kind.
std::string name_for_llama(const std::string& name, const ModelText& text);

// The parts of add_vocabulary() follow.

// A model's tokenizer.json, parsed once.
struct TokenizerFile {
  std::string path;
  nlohmann::json json;
};

// tokenizer.ggml.pre of a byte-level tokenizer. Throws Error(bad_input) if llama.cpp has none that splits the same way.
std::string pre_tokenizer_name(const TokenizerFile& file);

// Merges in the form "left right".
std::vector<std::string> merge_texts(const TokenizerFile& file);

// Whether a SentencePiece tokenizer puts a space before a text, for llama.cpp to do the same. Throws Error(bad_input)
// if it splits or changes text in another way.
bool piece_space_prefix(const TokenizerFile& file);

// The score of every id below `vocab`, from which llama.cpp's tokenizer reproduces the merges of the file: minus the
// rank of the first merge that produces the token. Throws Error(bad_input) if no such scores reproduce the merges.
std::vector<float> piece_scores(const TokenizerFile& file, const Tokenizer& tokenizer, int64_t vocab);

}  // namespace megatrain
