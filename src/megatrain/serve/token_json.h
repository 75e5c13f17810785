// Likelihoods of tokens in OpenAI's two forms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/generate/likelihood.h"
#include "megatrain/io/json.h"
#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

// The content of a chat's `logprobs`: a list of {token, logprob, bytes, top_logprobs}.
nlohmann::ordered_json chat_tokens(const Tokenizer& tokenizer, const std::vector<Likelihood>& tokens);

// A completion's `logprobs`: {tokens, token_logprobs, top_logprobs, text_offset}. Offsets count characters.
class CompletionTokens {
 public:
  explicit CompletionTokens(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // A prompt's tokens; nothing is known of the first. `shows_special`: its text has special tokens.
  void add_prompt(const std::vector<int32_t>& ids, const std::vector<Likelihood>& later, bool shows_special);
  void add(const std::vector<Likelihood>& tokens);
  // What was added since the last call.
  nlohmann::ordered_json take();

 private:
  void add_text(int32_t id, bool shown);
  void add_likelihood(const Likelihood& likelihood);

  const Tokenizer& tokenizer_;
  int64_t offset_ = 0;
  nlohmann::ordered_json tokens_ = nlohmann::ordered_json::array(), log_probs_ = nlohmann::ordered_json::array(),
                         tops_ = nlohmann::ordered_json::array(), offsets_ = nlohmann::ordered_json::array();
};

}  // namespace megatrain
