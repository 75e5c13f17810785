// What a Hugging Face directory knows of text: its tokenizer, its chat template, and which tokens end an answer.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "megatrain/text/chat_template.h"
#include "megatrain/text/tokenizer.h"

namespace megatrain {

class TextModel {
 public:
  // Throws Error(bad_input), also when there is no tokenizer.json.
  explicit TextModel(const std::string& directory);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_chat_template() const { return chat_ != nullptr; }

  // Text to go on from, with the special tokens the tokenizer adds.
  std::vector<int32_t> encode(std::string_view text) const { return tokenizer_.encode(text, true); }
  // A conversation to be answered: the chat template's text with its prompt for an answer, and no token beside it.
  // Throws Error(bad_input) where there is no template.
  std::vector<int32_t> encode_chat(const nlohmann::ordered_json& messages) const;

  // eos_token_id of generation_config.json and config.json, eos_token of tokenizer_config.json.
  const std::set<int32_t>& end_ids() const { return end_ids_; }
  // The same and the special token with which the chat template ends an assistant's turn.
  const std::set<int32_t>& chat_end_ids() const { return chat_end_ids_; }

 private:
  void read_end_ids();
  void find_turn_end();

  std::string directory_;
  Tokenizer tokenizer_;
  std::unique_ptr<ChatTemplate> chat_;
  std::set<int32_t> end_ids_, chat_end_ids_;
};

}  // namespace megatrain
