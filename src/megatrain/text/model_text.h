// What a model's directory says about text: tokenizer, chat template, and the tokens that begin, end and fill.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/text/chat_template.h"
#include "megatrain/text/tokenizer.h"

namespace megatrain {

struct ModelText {
  Tokenizer tokenizer;
  std::string tokenizer_identity;             // a hash of what decides the ids
  std::optional<ChatTemplate> chat_template;  // nothing: the model has none
  std::string template_identity;              // a hash of what decides the text
  std::vector<int32_t> eos;                   // ids that end an answer; the first one ends documents
  int32_t padding = 0;                        // an id that may stand where nothing is read

  // `path` is a directory with a tokenizer.json, or that file alone; `template_file`, when given, stands for the
  // model's own template. Throws Error(bad_input).
  static ModelText load(const std::string& path, const std::string& template_file = "");
};

}  // namespace megatrain
