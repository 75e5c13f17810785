// Entries of added_tokens in tokenizer.json and of added_tokens_decoder in tokenizer_config.json.
#pragma once

#include <cstdint>
#include <string>

#include "megatrain/io/json.h"

namespace megatrain {

// A special token that matches its text exactly; `more` overrides its fields.
inline nlohmann::json decoder_token(const std::string& content, const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json token = {{"content", content}, {"single_word", false}, {"lstrip", false},
                          {"rstrip", false},    {"normalized", false},  {"special", true}};
  token.update(more);
  return token;
}

inline nlohmann::json added_token(int64_t id, const std::string& content,
                                  const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json token = decoder_token(content, more);
  token["id"] = id;
  return token;
}

}  // namespace megatrain
