// Compares a built-in chat template with a model's own, and checks that the model's tokenizer has its tokens.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "megatrain/chat/chat_template.h"
#include "megatrain/tokenizer/tokenizer.h"

namespace megatrain {

// Renders a few short conversations with both: one turn and two, with a system turn, with tools if both templates write
// them, and each with a generation prompt. Empty if all texts are equal; otherwise the first two that differ, quoted,
// or "refuses it".
std::optional<std::pair<std::string, std::string>> find_difference(const ChatTemplate& one, const ChatTemplate& other);

// Throws Error(bad_input) if `tokenizer` lacks a token that marks the turns of the built-in template `name`, or if
// nothing ends its answers. Warns of words that are a token in the template's own models and several tokens here.
// `key` is the configuration's key that names the template.
void check_template_tokens(const ChatTemplate& builtin, const std::string& name, const Tokenizer& tokenizer,
                           const std::string& key);

}  // namespace megatrain
