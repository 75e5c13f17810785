// What a model's directory says about text: its tokenizer, its chat template, its end tokens and its padding token.
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
  std::string tokenizer_identity;             // a hash of everything that decides the ids
  std::optional<ChatTemplate> chat_template;  // empty: the model has none
  std::string template_identity;              // a hash of everything that decides the text
  int32_t eos = -1;                           // ends documents: eos_token in tokenizer_config.json; -1: none
  int32_t padding = 0;                        // an id for positions that nothing reads
  std::set<int32_t> end_ids;       // end an answer: eos, and eos_token_id of generation_config.json and config.json
  std::set<int32_t> chat_end_ids;  // the same, and the special token that ends an assistant's turn

  // `path` is a directory with a tokenizer.json, or that file itself. `template_file`, if given, replaces the model's
  // own template. `tokenizer_key`, if given, is the configuration key that can name another directory; the error for a
  // directory without a tokenizer mentions it. Throws Error(bad_input).
  static ModelText load(const std::string& path, const std::string& template_file = "",
                        const std::string& tokenizer_key = "");

  // A conversation to be answered: the chat template's text with its generation prompt, without additional special
  // tokens. Throws Error(bad_input) if there is no template.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& messages) const;

 private:
  void read_end_ids(const std::string& directory);
  void find_turn_end();
};

}  // namespace megatrain
