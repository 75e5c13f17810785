#include "megatrain/serve/token_json.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "megatrain/unicode/unicode.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

std::string bytes_of_token(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.is_special(id) ? tokenizer.token_of(id) : tokenizer.bytes_of(id);
}

// A part of a character is shown as OpenAI does it.
std::string shown_token(const std::string& bytes) {
  if (find_invalid_utf8(bytes) == std::string::npos) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

Json chat_token(const Tokenizer& tokenizer, const LikelyToken& token) {
  const std::string bytes = bytes_of_token(tokenizer, token.id);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return {{"token", shown_token(bytes)}, {"logprob", token.log_prob}, {"bytes", std::move(list)}};
}

}  // namespace

Json chat_tokens(const Tokenizer& tokenizer, const std::vector<Likelihood>& tokens) {
  Json content = Json::array();
  for (const Likelihood& likelihood : tokens) {
    Json entry = chat_token(tokenizer, likelihood.token);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const LikelyToken& token : likelihood.top) top.push_back(chat_token(tokenizer, token));
    content.push_back(std::move(entry));
  }
  return content;
}

void CompletionTokens::add_text(int32_t id, bool shown) {
  const std::string bytes = bytes_of_token(tokenizer_, id);
  tokens_.push_back(shown_token(bytes));
  offsets_.push_back(offset_);
  if (shown)
    offset_ += std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void CompletionTokens::add_likelihood(const Likelihood& likelihood) {
  log_probs_.push_back(likelihood.token.log_prob);
  Json top = Json::object();
  const auto add = [&](const LikelyToken& token) {  // of two tokens with one text, the likelier
    top.emplace(shown_token(bytes_of_token(tokenizer_, token.id)), token.log_prob);
  };
  for (const LikelyToken& token : likelihood.top) add(token);
  add(likelihood.token);
  tops_.push_back(std::move(top));
}

void CompletionTokens::add_prompt(const std::vector<int32_t>& ids, const std::vector<Likelihood>& later,
                                  bool shows_special) {
  for (size_t i = 0; i < ids.size(); ++i) {
    add_text(ids[i], shows_special || !tokenizer_.is_special(ids[i]));
    if (i > 0 && i - 1 < later.size()) {
      add_likelihood(later[i - 1]);
    } else {
      log_probs_.push_back(nullptr);
      tops_.push_back(nullptr);
    }
  }
}

void CompletionTokens::add(const std::vector<Likelihood>& tokens) {
  for (const Likelihood& likelihood : tokens) {
    add_text(likelihood.token.id, !tokenizer_.is_special(likelihood.token.id));
    add_likelihood(likelihood);
  }
}

Json CompletionTokens::take() {
  return {{"tokens", std::exchange(tokens_, Json::array())},
          {"token_logprobs", std::exchange(log_probs_, Json::array())},
          {"top_logprobs", std::exchange(tops_, Json::array())},
          {"text_offset", std::exchange(offsets_, Json::array())}};
}

}  // namespace megatrain
