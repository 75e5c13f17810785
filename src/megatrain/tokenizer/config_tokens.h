// Tokens that the files beside tokenizer.json add to it, as transformers does when it loads a tokenizer.
#pragma once

#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/tokenizer/added_tokens.h"

namespace megatrain {

// The files of a model's directory that name tokens. A missing file is an empty object.
struct TokenizerConfigFiles {
  nlohmann::json config;              // tokenizer_config.json
  nlohmann::json special_tokens_map;  // special_tokens_map.json, used only without an added_tokens_decoder
  nlohmann::json added_tokens;        // added_tokens.json, used only without an added_tokens_decoder
  std::string directory;              // for errors

  static TokenizerConfigFiles read(const std::string& directory);

  // tokenizer_config.json, with the named tokens of special_tokens_map.json if that file is used.
  nlohmann::json named() const;
};

// In the order in which they are added: those of added_tokens_decoder (or added_tokens.json) by index, then the named
// ones, then additional_special_tokens and extra_special_tokens. Error(bad_input) for an entry that is not a token.
std::vector<ConfigToken> config_tokens(const TokenizerConfigFiles& files);

}  // namespace megatrain
