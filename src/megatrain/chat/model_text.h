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
  std::string replaced_template;              // the Jinja text in use instead of the model's own; empty: its own
  int32_t eos = -1;                           // ends documents: eos_token in tokenizer_config.json; -1: none
  int32_t padding = 0;                        // an id for positions that nothing reads
  std::set<int32_t> end_ids;       // end an answer: eos, and eos_token_id of generation_config.json and config.json
  std::set<int32_t> chat_end_ids;  // the same, and the special token that ends an assistant's turn

  // `path` is a directory with a tokenizer.json, or that file itself. `chosen`, if given, replaces the model's own
  // template: the name of a built-in template, or a file. If both render conversations alike, a name leaves the model's
  // own in place, otherwise a warning shows the difference. The keys are those of the configuration that can name
  // another tokenizer and another template, for messages. Throws Error(bad_input).
  static ModelText load(const std::string& path, const std::string& chosen = "", const std::string& tokenizer_key = "",
                        const std::string& template_key = "data.template");

  // A conversation to be answered: the chat template's text with its generation prompt, without additional special
  // tokens. Throws Error(bad_input) if there is no template.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& messages) const;

 private:
  void read_end_ids(const std::string& directory);
  std::vector<std::string> end_tokens() const;
  void add_tokens(ChatTemplate& to) const;
  void choose_template(const std::string& directory, std::string chosen, const std::string& template_key);
  void find_turn_end();
};

}  // namespace megatrain
