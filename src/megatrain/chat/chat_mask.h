// The loss mask of a conversation: which bytes of the rendered text are the assistant's answers.
//
// Every byte knows the message it came from and the message whose turn wrote it (chat/jinja/text.h). An answer is found
// wherever its own turn wrote its data, and wherever its data appears outside all turns. It is trained
// - from the end of its header. The header is the generation prompt if the text begins with it, ignoring white space at
//   its end. Otherwise it is what the template writes before a message that has only content. Otherwise it is what the
//   text shares with these two, up to a whole line or special token;
// - to the end of its closing text. That is the first token known to end an answer, otherwise everything the template
//   writes after the answer when it is the last message. It may be inside the turn, in the template's text after it,
//   or, in some templates, at the beginning of the next message's turn.
//
// An answer that another message's turn quotes is not trained there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/chat/chat_template.h"
#include "megatrain/chat/jinja/text.h"
#include "megatrain/tokenizer/special_tokens.h"

namespace megatrain {

struct MaskInputs {
  const jinja::Text& text;
  const std::vector<std::string>& roles;  // one per message
  const SpecialTokens& special_tokens;
  const SpecialTokens& end_tokens;  // known to end a turn: eos and the like
  // Another rendering of the conversation; empty if the template refuses it.
  struct Variant {
    size_t count;  // only the first `count` messages
    bool generation_prompt = false;
    bool plain = false;  // replace each answer with a short text without tool calls or reasoning
    std::optional<size_t> plain_message = std::nullopt;  // only this answer
  };
  std::function<std::optional<jinja::Text>(const Variant&)> render;
};

struct ChatMask {
  std::vector<TrainedSpan> trained;
  bool ends = true;  // the trained text includes something that ends the last answer
  bool sure = true;  // every answer begins like its generation prompt or like a plain answer
};

// Renders a bounded number of variants, however long the conversation is.
ChatMask find_trained(const MaskInputs& inputs);

// Trains what {% generation %} blocks wrote.
ChatMask find_generated(const jinja::Text& text, const SpecialTokens& special_tokens);

}  // namespace megatrain
