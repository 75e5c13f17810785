// Which bytes of a rendered conversation are the assistant's answers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/text/chat_template.h"
#include "megatrain/text/jinja/text.h"

namespace megatrain {

struct MaskInputs {
  const jinja::Text& text;
  std::vector<bool> is_assistant;  // of each message
  const std::vector<std::string>& special_tokens;
  std::string eos_token;  // may be empty
  // The first `count` messages with or without the generation prompt; nothing where the template refuses them.
  std::function<std::optional<jinja::Text>(size_t count, bool generation_prompt)> render;
};

std::vector<TrainedSpan> find_trained(const MaskInputs& inputs);

// What {% generation %} blocks wrote.
std::vector<TrainedSpan> find_generated(const jinja::Text& text);

}  // namespace megatrain
