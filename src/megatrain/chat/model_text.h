// What a model's directory knows of text: its tokenizer, its chat template, and which tokens end and fill.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megatrain/chat/chat_template.h"
#include "megatrain/io/json.h"
#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

struct ModelText {
  std::string path;
  Tokenizer tokenizer;
  std::string tokenizer_identity;             // a hash of what decides the ids
  std::optional<ChatTemplate> chat_template;  // nothing: the model has none
  std::string template_identity;              // a hash of what decides the text
  int32_t eos = -1;                           // ends documents: eos_token of tokenizer_config.json; -1: none
  int32_t padding = 0;                        // may stand where nothing is read
  std::set<int32_t> end_ids;       // end an answer: eos, and eos_token_id of generation_config.json and config.json
  std::set<int32_t> chat_end_ids;  // the same and the special token that ends an assistant's turn

  // `path` is a directory with a tokenizer.json, or that file alone; `template_file`, when given, stands for the
  // model's own template; `tokenizer_key`, when given, is the key that may name another directory, for the sentence
  // that refuses one without a tokenizer. Throws Error(bad_input).
  static ModelText load(const std::string& path, const std::string& template_file = "",
                        const std::string& tokenizer_key = "");

  // A conversation to be answered: the chat template's text with its prompt for an answer, and no token beside it.
  // Throws Error(bad_input) where there is no template.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& messages) const;

 private:
  void read_end_ids(const std::string& directory);
  void find_turn_end();
};

}  // namespace megatrain
