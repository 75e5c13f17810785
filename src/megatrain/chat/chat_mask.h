// Which bytes of a rendered conversation are the assistant's answers.
//
// Every byte of the text knows the message it came from and the message whose turn wrote it (chat/jinja/text.h). An
// answer is, in every place that its turn wrote its data to, and where its data stands outside of all turns:
//   from the end of the header: the generation prompt, where the place begins with it (white space at its end aside);
//   else what the template writes before the data of a message that has content alone; else what the place shares with
//   these two, up to a whole line or special token,
//   to the end of what closes the turn: the first token known to end an answer, or else all that the template writes
//   there when the answer is the last message, inside of the turn, in the template's text behind it, or first thing in
//   the next message's turn, as some templates write it.
// What another message's turn quotes of an answer is not trained there.
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
  const std::vector<std::string>& roles;  // of each message
  const SpecialTokens& special_tokens;
  const SpecialTokens& end_tokens;  // those known to end a turn: eos and its like
  // Another rendering of the conversation; nothing where the template refuses it.
  struct Variant {
    size_t count;  // the first messages alone
    bool generation_prompt = false;
    bool plain = false;                                  // each answer is a short text, without tool calls or reasoning
    std::optional<size_t> plain_message = std::nullopt;  // this one alone
  };
  std::function<std::optional<jinja::Text>(const Variant&)> render;
};

struct ChatMask {
  std::vector<TrainedSpan> trained;
  bool ends = true;  // something that ends the last answer is trained
  bool sure = true;  // every answer begins as the template asks for one, or as it begins a plain one
};

// Renders a bounded number of variants, however long the conversation is.
ChatMask find_trained(const MaskInputs& inputs);

// What {% generation %} blocks wrote.
ChatMask find_generated(const jinja::Text& text, const SpecialTokens& special_tokens);

}  // namespace megatrain
