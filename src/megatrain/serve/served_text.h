// What a server knows about the text of one of its models, in addition to ModelText: how long tokens are, how it writes
// tool calls, and the constraints of answers.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/chat/model_text.h"
#include "megatrain/chat/tool_form.h"
#include "megatrain/grammar/token_rules.h"
#include "megatrain/serve/api_request.h"

namespace megatrain {

class ServedText {
 public:
  // `text` outlives this. `vocabulary`: the model's.
  ServedText(const ModelText& text, int64_t vocabulary);

  const ModelText& text() const { return text_; }
  const ToolForm& form() const { return form_; }
  // Bytes of the longest token. A special token may also absorb blanks around it, which its text does not show; a
  // client that sends megabytes of them is refused, too.
  size_t longest_token() const { return longest_token_; }
  // Whether calls are marked by special tokens, so that an answer's text is needed with them.
  bool calls_have_special_tokens() const { return special_calls_; }
  std::string without_special_tokens(std::string text) const;

  // What an answer to the request must be; null if it may be anything. From any thread; what it returns is used by one
  // thread. Throws ApiError(400) for what cannot be obeyed.
  std::shared_ptr<TokenConstraint> constraint(const ApiRequest& request);

 private:
  // A grammar by what it depends on.
  struct Known {
    std::string key;
    std::shared_ptr<TokenRules> rules;
  };

  std::shared_ptr<TokenRules> rules(const std::string& key, bool with_special, Grammar grammar);
  std::shared_ptr<TokenRules> known(const std::string& key);
  Grammar format_grammar(const ApiRequest& request) const;
  Grammar tool_grammar(const ApiRequest& request) const;

  const ModelText& text_;
  int64_t vocabulary_;
  ToolForm form_;
  size_t longest_token_ = 1;
  bool special_calls_ = false;
  std::vector<std::string> special_tokens_;

  std::mutex mutex_;
  std::shared_ptr<const TokenTrie> tries_[2];  // without and with special tokens; made when first needed
  std::list<Known> known_;                     // most recently used first
};

}  // namespace megatrain
